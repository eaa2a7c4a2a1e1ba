#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/models/sequence_layers.hpp"

#include "models/bias_gradient.hpp"
#include "models/recurrent_cells.hpp"

namespace fedhpc {

namespace {

/// Place t of a stack [C, B, places width], of which it may hold the latest ones alone: [C, B,
/// width].
Tensor at_place(const Tensor& stack, std::int64_t t, std::int64_t width) {
  return stack.narrow(2, t % (stack.size(2) / width) * width, width);
}

/// All places of all samples of a stack as rows, [C, B places, width].
Tensor all_places(const Tensor& stack, std::int64_t width) {
  return stack.view({stack.size(0), stack.size(1) * stack.size(2) / width, width});
}

}  // namespace

/// What a pass works on, for some clients.
struct Recurrent::Block {
  Block(const Recurrent& layer, const Pass& pass, std::int64_t first, std::int64_t count,
        Stacks all_inputs, const Tensor& all_output)
      : arithmetic(pass.arithmetic), weights(pass.weights.narrow(0, first, count)) {
    const auto part = [&](const Tensor& stack) {
      return stack.defined() ? stack.narrow(0, first, count) : stack;
    };
    input = part(all_inputs[0]);
    output = part(all_output);
    const std::vector<Tensor>& saved = pass.saved.per_sample;
    gates = part(saved[0]);
    cells = part(saved[1]);
    squashed = part(saved[2]);
    shares = layer.cell_ == Cell::Gru ? part(saved[1]) : gates;
    zeros = at::zeros({1, 1, layer.sizes_.hidden}, output.options())
                .expand({count, output.size(1), layer.sizes_.hidden});
    if (pass.use == Use::Evaluation) return;
    carry = part(saved[3]);
    cell_carry = part(saved[4]);
  }

  const Arithmetic& arithmetic;
  Tensor weights;
  Tensor input;            // [C, B, places in]
  Tensor output;           // [C, B, places hidden]
  Tensor gates;            // [C, B, places G hidden]
  Tensor shares;           // of the hidden values in the gates' sums; an LSTM's are the gates
  Tensor cells;            // [C, B, places hidden], as the next one
  Tensor squashed;         // tanh of the cells
  Tensor zeros;            // [C, B, hidden]
  Tensor carry;            // of gradients from step to step, [C, B, hidden]
  Tensor cell_carry;       // as that
  Tensor output_gradient;  // as output
  Tensor input_gradient;   // as input, or undefined
};

Recurrent::Recurrent(ParameterNames names, Cell cell, const Sizes& sizes, Direction direction,
                     Bias bias, Tag tags)
    : names_(std::move(names)),
      cell_(cell),
      sizes_(sizes),
      direction_(direction),
      bias_(bias),
      tags_(tags) {}

void Recurrent::declare(Layout& layout) {
  const std::int64_t hidden = sizes_.hidden;
  input_weight_ = layout.size();
  layout.add(names_.of(0, "weight_ih_l0"), {gates(), sizes_.in}, hidden, tags_ | kWeightTags);
  hidden_weight_ = layout.size();
  layout.add(names_.of(1, "weight_hh_l0"), {gates(), hidden}, hidden, tags_ | kWeightTags);
  if (bias_ == Bias::None) return;
  input_bias_ = layout.size();
  layout.add(names_.of(2, "bias_ih_l0"), {gates()}, hidden, tags_ | kBiasTags);
  hidden_bias_ = layout.size();
  layout.add(names_.of(3, "bias_hh_l0"), {gates()}, hidden, tags_ | kBiasTags);
}

double Recurrent::forward_flops() const {
  return 2.0 * static_cast<double>(sizes_.places) * static_cast<double>(gates()) *
         static_cast<double>(sizes_.in + sizes_.hidden);
}

Saved Recurrent::make_saved(std::int64_t clients, std::int64_t batch,
                            const at::TensorOptions& options, Use use) const {
  const std::int64_t hidden = sizes_.hidden;
  const bool lstm = cell_ == Cell::Lstm;
  // Cells of all steps for the way back, else of two: a step reads those before it.
  const std::int64_t kept = use == Use::Training ? sizes_.places : 2;
  std::vector<std::int64_t> widths{sizes_.places * gates(),
                                   lstm ? kept * hidden : sizes_.places * gates(),
                                   lstm ? kept * hidden : 0};
  if (use == Use::Training) widths.insert(widths.end(), {hidden, lstm ? hidden : 0});
  Saved saved;
  for (const std::int64_t width : widths) {
    saved.per_sample.push_back(at::empty({clients, batch, width}, options));
  }
  return saved;
}

/// The biases at every place, or zeros: what products add onto.
void Recurrent::start(const Tensor& shares, const Tensor& weights, std::int64_t bias_column) const {
  if (bias_ == Bias::None) {
    shares.zero_();
    return;
  }
  all_places(shares, gates()).copy_(weights.narrow(1, bias_column, gates()).unsqueeze(1));
}

void Recurrent::forward(const Block& block) const {
  const std::int64_t hidden = sizes_.hidden;
  const at::ScalarType type = block.output.scalar_type();
  const std::int64_t clients = block.output.size(0);
  start(block.gates, block.weights, input_bias_);
  if (cell_ == Cell::Gru) {
    start(block.shares, block.weights, hidden_bias_);
  } else if (bias_ == Bias::Use) {
    all_places(block.gates, gates())
        .add_(block.weights.narrow(1, hidden_bias_, gates()).unsqueeze(1));
  }
  batched_product(type, clients, 1, matrices_of(all_places(block.input, sizes_.in)), Transpose::No,
                  matrices_in(block.weights, input_weight_, gates(), sizes_.in), Transpose::Yes, 1,
                  matrices_of(all_places(block.gates, gates())), block.arithmetic);
  const MatrixStack weight = matrices_in(block.weights, hidden_weight_, gates(), hidden);
  for (std::int64_t s = 0; s < sizes_.places; ++s) {
    const std::int64_t t = place(s);
    const Tensor before = s == 0 ? block.zeros : at_place(block.output, place(s - 1), hidden);
    const Tensor shares = at_place(block.shares, t, gates());
    if (s > 0) {
      batched_product(type, clients, 1, matrices_of(before), Transpose::No, weight, Transpose::Yes,
                      1, matrices_of(shares), block.arithmetic);
    }
    const Tensor output = at_place(block.output, t, hidden);
    if (cell_ == Cell::Gru) {
      gru_forward({at_place(block.gates, t, gates()), shares, before}, output);
      continue;
    }
    lstm_forward({shares, s == 0 ? block.zeros : at_place(block.cells, place(s - 1), hidden),
                  at_place(block.cells, t, hidden), at_place(block.squashed, t, hidden)},
                 output);
  }
}

/// The gates, and the hidden values' shares, become their gradients.
void Recurrent::go_back(const Block& block) const {
  const std::int64_t hidden = sizes_.hidden;
  const bool lstm = cell_ == Cell::Lstm;
  const MatrixStack weight = matrices_in(block.weights, hidden_weight_, gates(), hidden);
  block.carry.zero_();
  block.cell_carry.zero_();
  for (std::int64_t s = sizes_.places - 1; s >= 0; --s) {
    const std::int64_t t = place(s);
    const Tensor shares = at_place(block.shares, t, gates());
    const Tensor output_gradient = at_place(block.output_gradient, t, hidden);
    const auto before = [&](const Tensor& stack) {
      return s == 0 ? block.zeros : at_place(stack, place(s - 1), hidden);
    };
    if (lstm) {
      lstm_backward({shares, before(block.cells), {}, at_place(block.squashed, t, hidden)},
                    output_gradient, block.carry, block.cell_carry);
    } else {
      gru_backward({at_place(block.gates, t, gates()), shares, before(block.output)},
                   output_gradient, block.carry);
    }
    if (s == 0) continue;
    batched_product(block.carry.scalar_type(), block.carry.size(0), 1, matrices_of(shares),
                    Transpose::No, weight, Transpose::No, lstm ? 0 : 1, matrices_of(block.carry),
                    block.arithmetic);
  }
}

void Recurrent::give_gradients(const Block& block, const GradientSink& sink) const {
  const at::ScalarType type = block.output.scalar_type();
  const std::int64_t clients = block.output.size(0);
  const Tensor of_gates = all_places(block.gates, gates());
  const Tensor input = all_places(block.input, sizes_.in);
  if (block.input_gradient.defined()) {
    batched_product(type, clients, 1, matrices_of(of_gates), Transpose::No,
                    matrices_in(block.weights, input_weight_, gates(), sizes_.in), Transpose::No, 0,
                    matrices_of(all_places(block.input_gradient, sizes_.in)), block.arithmetic);
  }
  const Tensor of_shares = all_places(block.shares, gates());
  if (bias_ == Bias::Use && sink.columns.hold(tags_ | kBiasTags)) {
    bias_gradient(of_gates, input_bias_, sink);
    bias_gradient(of_shares, hidden_bias_, sink);
  }
  if (!sink.columns.hold(tags_ | kWeightTags)) return;
  batched_product(type, clients, sink.scale, matrices_of(of_gates), Transpose::Yes,
                  matrices_of(input), Transpose::No, sink.keep,
                  matrices_in(sink.rows, input_weight_, gates(), sizes_.in), block.arithmetic);
  // One product over the steps of all samples: each row beside the hidden values of the row before
  // it. A sample's first step has none; where it meets another sample's last one it counts nothing.
  at_place(block.shares, place(0), gates()).zero_();
  const Tensor output = all_places(block.output, sizes_.hidden);
  const std::int64_t rows = output.size(1) - (sizes_.places > 1 ? 1 : 0);
  const std::int64_t last = output.size(1) - rows;
  const bool forward = direction_ == Direction::Forward;
  batched_product(type, clients, sink.scale,
                  matrices_of(of_shares.narrow(1, forward ? last : 0, rows)), Transpose::Yes,
                  matrices_of(output.narrow(1, forward ? 0 : last, rows)), Transpose::No, sink.keep,
                  matrices_in(sink.rows, hidden_weight_, gates(), sizes_.hidden), block.arithmetic);
}

void Recurrent::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  // On the host one client after the other: its weights stay in the cache from step to step.
  const std::int64_t together = on_device(output) ? output.size(0) : 1;
  for (std::int64_t c = 0; c < output.size(0); c += together) {
    forward(Block(*this, pass, c, together, inputs, output));
  }
}

void Recurrent::backward(const Pass& pass, Stacks inputs, const Tensor& output,
                         const Tensor& output_gradient, Stacks input_gradients,
                         const GradientSink& sink) const {
  const std::int64_t together = on_device(output) ? output.size(0) : 1;
  for (std::int64_t c = 0; c < output.size(0); c += together) {
    Block block(*this, pass, c, together, inputs, output);
    block.output_gradient = output_gradient.narrow(0, c, together);
    if (input_gradients[0].defined()) {
      block.input_gradient = input_gradients[0].narrow(0, c, together);
    }
    go_back(block);
    GradientSink own = sink;
    own.rows = sink.rows.narrow(0, c, together);
    give_gradients(block, own);
  }
}

}  // namespace fedhpc
