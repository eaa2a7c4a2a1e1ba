#include "fedhpc/models/script_model.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

#include "models/script_variables.hpp"

namespace fedhpc {

namespace {

namespace jit = torch::jit;

/// What backward needs of a client's forward pass.
struct Tape {
  std::vector<Tensor> leaves;  // of each variable; undefined for buffers
  Tensor output;               // [B, K]
};

/// The reason in an error of LibTorch, without its traces of the script and of C++.
std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  for (const std::string_view mark : {"RuntimeError: ", "Error: "}) {
    if (const std::size_t place = text.rfind(mark); place != std::string::npos) {
      text = text.substr(place + mark.size());
      break;
    }
  }
  text.erase(0, text.find_first_not_of(" \n"));
  text = text.substr(0, std::min(text.find('\n'), text.find(". ")));
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

/// Computes a whole network by a script, client by client.
class ScriptNetwork final : public Layer {
 public:
  ScriptNetwork(const std::string& path, jit::Module module)
      : source_(concat("model.file '", path, "'")),
        module_(std::move(module)),
        variables_(variables_of(module_, source_)) {
    place_columns();
    const auto head = std::find_if(variables_.rows.rbegin(), variables_.rows.rend(),
                                   [](const ScriptVariable& one) { return one.is_weight(); });
    if (head == variables_.rows.rend()) {
      throw DataError(concat(source_,
                             " has no weight of two or more dimensions to train, but for norms, "
                             "embeddings and frozen parameters"));
    }
    const std::string place = head->name.substr(0, head->name.rfind('.') + 1);
    head->tags = head->tags | Tag::Head;
    for (ScriptVariable& one : variables_.rows) {
      if (one.trains() && one.name == place + "bias") one.tags = one.tags | Tag::Head;
    }
  }

  /// Throws DataError unless the script makes [2, ...] of two samples by rows of `type`, and a
  /// gradient. Buffers that training does not move become constants.
  void try_out(const Shape& shape, at::ScalarType type) {
    shape_ = shape;
    const Tensor row = initial_row_of_file().to(type).squeeze(0);
    const Tensor zeros = at::zeros({2, values_of_sample()}, type);
    Trial trial;
    if (const std::string reason = why_not(row, zeros, trial); !reason.empty()) {
      throw DataError(concat(source_, " cannot be run on samples of ", at::IntArrayRef(shape),
                             " on the CPU", type == at::kFloat ? "" : " in run.dtype = float64",
                             ": ", reason));
    }
    // Of zeros some statistics are what they were. Samples of other kinds may have no such values.
    const Tensor count = at::arange(zeros.numel(), zeros.options()).view(zeros.sizes());
    why_not(row, at::ones_like(zeros), trial);
    why_not(row, count.sin(), trial);
    warn_of_unused(trial);
    hold_constant(trial);
  }

  Tensor initial_row_of_file() const {  // [1, P] float64
    std::vector<Tensor> parts;
    for (const ScriptVariable& one : variables_.rows) {
      parts.push_back(one.initial.flatten().to(at::kDouble));
    }
    return at::cat(parts).unsqueeze(0);
  }

  std::int64_t output_features() const override { return outputs_; }
  const Shape& output_shape() const { return output_shape_; }
  bool is_whole_network() const override { return true; }
  bool draws() const override { return true; }
  double forward_flops() const override {
    double weights = 0;
    for (const ScriptVariable& one : variables_.rows) {
      weights += static_cast<double>(one.initial.numel());
    }
    return 2 * weights;  // as if each were used once
  }

  void declare(Layout& layout) override {
    require(layout.size() == 0, "a script is the whole network");
    layout.set_needs_pairs(variables_.has_batch_norm);
    std::size_t layer = variables_.rows.front().layer;
    for (const ScriptVariable& one : variables_.rows) {
      if (one.layer != layer) layout.begin_layer();
      layer = one.layer;
      const std::int64_t units = one.initial.dim() > 0 ? one.initial.size(0) : 1;
      layout.add(one.name, one.initial.sizes().vec(),
                 std::max<std::int64_t>(1, one.initial.numel() / units), one.tags);
    }
  }

  Saved make_saved(std::int64_t clients, std::int64_t, const at::TensorOptions&,
                   Use use) const override {
    Saved saved;
    for (std::int64_t c = 0; c < clients && use == Use::Training; ++c) {
      saved.own.push_back(std::make_shared<Tape>());
    }
    return saved;
  }

  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    for (std::int64_t c = 0; c < output.size(0); ++c) {
      if (pass.use == Use::Training) seed(pass.draws.key(c, 0));
      Tape tape;
      try {
        tape = call(pass.weights[c], inputs.front()[c], pass.use);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(concat(source_, " failed: ", reason_of(error)));
      }
      require(tape.output.numel() == output[c].numel(), "a script's output is [B, V]");
      output[c].copy_(tape.output.detach().reshape(output[c].sizes()));
      if (pass.use == Use::Training) tape_of(pass, c) = std::move(tape);
    }
  }

  void backward(const Pass& pass, Stacks, const Tensor& output, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink& sink) const override {
    require(!input_gradients.front().defined(), "a script is the whole network");
    std::vector<std::size_t> moved;
    for (std::size_t v = 0; v < variables_.rows.size(); ++v) {
      const ScriptVariable& one = variables_.rows[v];
      if (one.trains() && sink.columns.hold(one.tags)) moved.push_back(v);
    }
    for (std::int64_t c = 0; c < output.size(0) && !moved.empty(); ++c) {
      const Tape tape = std::exchange(tape_of(pass, c), {});
      std::vector<Tensor> leaves;
      for (const std::size_t v : moved) leaves.push_back(tape.leaves[v]);
      const std::vector<Tensor> gradients = torch::autograd::grad(
          {tape.output}, leaves, {output_gradient[c].reshape(tape.output.sizes())},
          /*retain_graph=*/false,
          /*create_graph=*/false, /*allow_unused=*/true);
      for (std::size_t i = 0; i < moved.size(); ++i) {
        take(variables_.rows[moved[i]].of(sink.rows[c]), gradients[i], sink);
      }
    }
  }

 private:
  /// What is found of the variables of rows, by their numbers, when the script is tried.
  struct Trial {
    std::set<std::size_t> moved;  // buffers
    std::set<std::size_t> used;   // parameters
  };

  void place_columns() {
    std::int64_t columns = 0;
    for (ScriptVariable& one : variables_.rows) {
      one.column = columns;
      columns += one.initial.numel();
    }
  }

  /// Runs and differentiates the script on samples; returns LibTorch's reason where it cannot.
  std::string why_not(const Tensor& row, const Tensor& samples, Trial& trial) {
    try {
      call(row, samples, Use::Evaluation);
      try_to_train(row, samples, trial);
    } catch (const Error& error) {
      throw DataError(error.what());
    } catch (const std::exception& error) {
      return reason_of(error);
    }
    return {};
  }

  void try_to_train(const Tensor& initial, const Tensor& samples, Trial& trial) {
    const Tensor row = initial.clone();
    seed({});
    const Tape tape = call(row, samples, Use::Training);
    check_output(tape.output);
    std::vector<Tensor> leaves;
    for (const Tensor& leaf : tape.leaves) {
      if (leaf.defined()) leaves.push_back(leaf);
    }
    auto gradients = torch::autograd::grad({tape.output}, leaves, {at::ones_like(tape.output)},
                                           /*retain_graph=*/false, /*create_graph=*/false,
                                           /*allow_unused=*/true);
    std::size_t next = 0;
    for (std::size_t v = 0; v < variables_.rows.size(); ++v) {
      const ScriptVariable& one = variables_.rows[v];
      if (one.trains()) {
        if (gradients[next++].defined()) trial.used.insert(v);
      } else if (!same_bits(one.of(row), one.of(initial))) {
        trial.moved.insert(v);
      }
    }
  }

  void check_output(const Tensor& output) {
    if (output.dim() == 0 || output.size(0) != 2 || !output.is_floating_point()) {
      throw DataError(concat(source_, " makes a tensor ", output.sizes(),
                             " of 2 samples; it has to return real numbers of each of them"));
    }
    if (outputs_ == 0) {
      outputs_ = output.numel() / 2;
      output_shape_ = output.sizes().slice(1).vec();
    }
    if (!output.requires_grad()) {
      throw DataError(concat(source_,
                             " gives its parameters no gradient; leave out no_grad and "
                             "detach, and do not freeze the module"));
    }
  }

  /// Masks and positions travel to nobody and are no part of a mean; statistics of norms are.
  void hold_constant(const Trial& trial) {
    std::vector<ScriptVariable> moving;
    for (std::size_t v = 0; v < variables_.rows.size(); ++v) {
      ScriptVariable& one = variables_.rows[v];
      const bool stays = !one.trains() && !one.of_norm && !trial.moved.contains(v);
      (stays ? variables_.constants : moving).push_back(std::move(one));
    }
    variables_.rows = std::move(moving);
    place_columns();
  }

  void warn_of_unused(const Trial& trial) const {
    std::size_t unused = 0;
    std::string first;
    for (std::size_t v = 0; v < variables_.rows.size(); ++v) {
      const ScriptVariable& one = variables_.rows[v];
      if (!one.trains() || trial.used.contains(v)) continue;
      if (unused++ == 0) first = one.name;
    }
    if (unused == 0) return;
    run_log().of_run(LogLevel::Warning,
                     concat(source_, ": no gradient came to ", unused,
                            unused == 1 ? " parameter, '" : " parameters, the first is '", first,
                            "', when it was tried; what forward does not use stays as it is"));
  }

  /// rows = keep rows + scale gradient, of one variable; undefined: of zeros.
  static void take(const Tensor& rows, const Tensor& gradient, const GradientSink& sink) {
    if (sink.keep == 0) {
      rows.zero_();
    } else if (sink.keep != 1) {
      rows.mul_(sink.keep);
    }
    if (gradient.defined()) rows.add_(gradient, sink.scale);
  }

  static Tape& tape_of(const Pass& pass, std::int64_t c) {
    return *static_cast<Tape*>(pass.saved.own[static_cast<std::size_t>(c)].get());
  }

  static void seed(const DrawKey& key) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(Draws(key).raw());
  }

  std::int64_t values_of_sample() const {
    std::int64_t values = 1;
    for (const std::int64_t length : shape_) values *= length;
    return values;
  }

  /// Runs the script on a client's samples [B, D] by its row [P]. In training its buffers move.
  Tape call(const Tensor& row, const Tensor& samples, Use use) const {
    const bool training = use == Use::Training;
    const at::AutoGradMode with_gradient(training);
    // As it is written: what the optimizer makes of it depends on how often it has been called.
    const jit::GraphOptimizerEnabledGuard optimized(false);
    module_.train(training);
    Tape tape;
    tape.leaves.resize(variables_.rows.size());
    for (std::size_t v = 0; v < variables_.rows.size(); ++v) {
      const ScriptVariable& one = variables_.rows[v];
      Tensor value = one.of(row);
      if (one.trains()) {
        tape.leaves[v] = value.requires_grad_(training);
      } else if (!training) {
        value = value.clone();
      }
      one.put(value);
    }
    for (const ScriptVariable& one : variables_.constants) {
      one.put(constant(one, row.scalar_type()).clone());
    }
    Shape shape{samples.size(0)};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    const jit::IValue result = module_.forward({samples.detach().clone().view(shape)});
    if (!result.isTensor()) throw std::runtime_error("its output is not a tensor");
    tape.output = result.toTensor();
    check_attributes();
    if (training) take_buffers(row);
    return tape;
  }

  /// What a call leaves in one would go to the next client, and be lost with the process.
  void check_attributes() const {
    for (const ScriptAttribute& one : variables_.attributes) {
      if (!one.has_changed()) continue;
      throw Error(concat(source_, ": forward changes '", one.name(),
                         "', which is no buffer and would go from client to client; make it a "
                         "floating buffer (register_buffer), or leave it alone"));
    }
  }

  /// A constant in the rows' number type.
  static Tensor constant(const ScriptVariable& one, at::ScalarType type) {
    return one.initial.is_floating_point() ? one.initial.to(type) : one.initial;
  }

  /// A script may have put new tensors into the places of its buffers.
  void take_buffers(const Tensor& row) const {
    for (const ScriptVariable& one : variables_.rows) {
      if (one.trains()) continue;
      const Tensor there = one.of(row);
      const Tensor now = one.slots.front().get();
      if (now.data_ptr() != there.data_ptr()) there.copy_(now.detach());
    }
    for (const ScriptVariable& one : variables_.constants) {
      if (!one.initial.is_floating_point() ||
          same_bits(one.slots.front().get(), constant(one, row.scalar_type()))) {
        continue;
      }
      throw Error(concat(source_, ": training moves '", one.name,
                         "', which is frozen, no buffer, or stayed when the script was tried; ",
                         "make it a buffer that every call in train() moves"));
    }
  }

  std::string source_;
  mutable jit::Module module_;
  ScriptVariables variables_;
  std::int64_t outputs_ = 0;
  Shape output_shape_;  // of one sample
  Shape shape_;
};

jit::Module load(const std::string& path) {
  try {
    return jit::load(path, at::kCPU);
  } catch (const std::exception& error) {
    throw DataError(concat(
        "model.file '", path, "' is no TorchScript file that can be loaded (", reason_of(error),
        "); for model.backend = autograd write it by "
        "fedhpc.script_model or torch.jit.save, not torch.save or torch.export"));
  }
}

}  // namespace

std::unique_ptr<Model> load_script_model(const std::string& path, const Shape& shape,
                                         at::ScalarType type) {
  std::int64_t features = 1;
  for (const std::int64_t length : shape) features *= length;
  auto network = std::make_unique<ScriptNetwork>(path, load(path));
  network->try_out(shape, type);
  const Tensor initial = network->initial_row_of_file();
  const Shape output = network->output_shape();
  Graph graph(features);
  graph.add(std::move(network));
  auto model = std::make_unique<Model>(std::move(graph));
  model->set_weights_of_file(initial);
  model->set_output_shape(output);
  return model;
}

}  // namespace fedhpc
