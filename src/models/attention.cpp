#include <algorithm>
#include <limits>

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/math/softmax_lines.hpp"
#include "fedhpc/models/sequence_layers.hpp"

#include "models/attention_rows.hpp"
#include "models/dropout_mask.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kCached = 1 << 15;  // scores of a block of samples on the host

/// Some samples of one client, or all of all clients, as rows [samples, width].
struct Samples {
  std::int64_t client = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;  // 0: all

  Tensor of(const Tensor& stack) const {
    if (!stack.defined()) return stack;
    return count == 0 ? stack.flatten(0, 1) : stack.select(0, client).narrow(0, first, count);
  }
};

/// The matrices [rows, columns] that lie one after the other in `samples`.
MatrixStack matrices(const Tensor& samples, std::int64_t rows, std::int64_t columns) {
  return {.data = samples.data_ptr(),
          .stack_stride = rows * columns,
          .rows = rows,
          .columns = columns,
          .row_stride = columns,
          .on_device = on_device(samples)};
}

/// Calls work(samples): on the host blocks of a client's samples whose scores stay in the cache, on
/// a device as many as lie without a gap.
template <typename Work>
void for_blocks(const Tensor& output, Stacks inputs, std::int64_t scores, Work&& work) {
  const std::int64_t batch = output.size(1);
  const bool device = on_device(output);
  if (device && output.is_contiguous() &&
      std::all_of(inputs.begin(), inputs.end(),
                  [](const Tensor& x) { return x.is_contiguous(); })) {
    return work(Samples{});
  }
  const std::int64_t most = device ? batch : std::max<std::int64_t>(1, kCached / scores);
  for (std::int64_t c = 0; c < output.size(0); ++c) {
    for (std::int64_t first = 0; first < batch; first += most) {
      work(Samples{c, first, std::min(most, batch - first)});
    }
  }
}

}  // namespace

double Attention::forward_flops() const {
  return 2.0 * static_cast<double>(scores()) * static_cast<double>(sizes_.width + sizes_.values);
}

Saved Attention::make_saved(std::int64_t clients, std::int64_t batch,
                            const at::TensorOptions& options, Use use) const {
  // The weights; with dropout also what is left of them, and its factors.
  const bool device = options.device().is_cuda();
  const int kept = use == Use::Training && draws() ? 3 : 1;
  Saved saved;
  for (int i = 0; i < kept; ++i) {
    saved.per_sample.push_back(at::empty({clients, batch, scores()}, options));
  }
  if (device && settings_.causal) {
    saved.shared.push_back(
        at::ones({sizes_.queries, sizes_.keys}, options.dtype(at::kBool)).triu(1));
  }
  return saved;
}

/// The softmax of scores [samples, ...], where these lie.
void Attention::weigh(const Tensor& scores, const Tensor& mask, const Saved& saved) const {
  if (!on_device(scores)) {
    return softmax_rows({scores, sizes_.heads, sizes_.queries, sizes_.keys, settings_.causal},
                        mask);
  }
  const Tensor each = scores.view({-1, sizes_.heads, sizes_.queries, sizes_.keys});
  if (mask.defined()) each.add_(mask.view({scores.size(0), -1, sizes_.queries, sizes_.keys}));
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  if (settings_.causal) each.masked_fill_(saved.shared.front(), kNothing);
  Tensor blind;
  if (mask.defined()) blind = each.eq(kNothing).all(-1, /*keepdim=*/true);
  Tensor weights = begin_alike(each, 3, kNothing);
  at::_softmax_out(weights, weights, 3, /*half_to_float=*/false);
  if (!weights.is_same(each)) each.copy_(weights.narrow(3, 0, sizes_.keys));
  if (mask.defined()) each.masked_fill_(blind, 0);
}

/// The factors of dropout. The host draws them for a device, too.
void Attention::draw_factors(const Pass& pass) const {
  const Tensor& factors = pass.saved.per_sample[2];
  const Tensor host =
      on_device(factors) ? at::empty(factors.sizes(), factors.options().device(at::kCPU)) : factors;
  const double p = settings_.dropout;
  with_type(host.scalar_type(), [&]<typename T>() {
    const T kept = p < 1 ? static_cast<T>(1 / (1 - p)) : T{0};
    for (std::int64_t c = 0; c < host.size(0); ++c) {
      T* of_client = host.data_ptr<T>() + c * host.stride(0);
      draw_mask(pass.draws.key(c, settings_.number), p, kept, of_client, host.size(1) * scores());
    }
  });
  if (on_device(factors)) factors.copy_(to_device(host, factors.device()));
}

/// to = scale a b^T. The host's kernels are fast where the second factor is not transposed.
void Attention::multiply_transposed(const Pass& pass, double scale, const Tensor& a,
                                    const Tensor& b, std::int64_t inner, const Tensor& to) const {
  const std::int64_t count = to.size(0) * sizes_.heads;
  const MatrixStack left = matrices(a, sizes_.queries, inner);
  const MatrixStack result = matrices(to, sizes_.queries, sizes_.keys);
  if (on_device(to)) {
    return batched_product(to.scalar_type(), count, scale, left, Transpose::No,
                           matrices(b, sizes_.keys, inner), Transpose::Yes, 0, result,
                           pass.arithmetic);
  }
  const Tensor transposed = at::empty(b.sizes(), b.options());
  transpose_matrices(b, sizes_.keys, inner, transposed);
  batched_product(to.scalar_type(), count, scale, left, Transpose::No,
                  matrices(transposed, inner, sizes_.keys), Transpose::No, 0, result,
                  pass.arithmetic);
}

void Attention::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Sizes& of = sizes_;
  const std::vector<Tensor>& saved = pass.saved.per_sample;
  const bool dropping = drops(pass);
  if (dropping) draw_factors(pass);
  for_blocks(output, inputs, scores(), [&](const Samples& some) {
    const Tensor weights = some.of(saved[0]);
    multiply_transposed(pass, settings_.scale, some.of(inputs[0]), some.of(inputs[1]), of.width,
                        weights);
    weigh(weights, inputs.size() == 4 ? some.of(inputs[3]) : Tensor(), pass.saved);
    Tensor dropped = dropping ? some.of(saved[1]) : weights;
    if (dropping) at::mul_out(dropped, weights, some.of(saved[2]));
    batched_product(output.scalar_type(), weights.size(0) * of.heads, 1,
                    matrices(dropped, of.queries, of.keys), Transpose::No,
                    matrices(some.of(inputs[2]), of.keys, of.values), Transpose::No, 0,
                    matrices(some.of(output), of.queries, of.values), pass.arithmetic);
  });
}

/// The gradient of the weights after dropout becomes that of the scores.
void Attention::weigh_back(const Tensor& weights, const Tensor& dropped, const Tensor& factors,
                           const Tensor& gradient) const {
  if (!on_device(gradient)) {
    return softmax_rows_back({weights, sizes_.heads, sizes_.queries, sizes_.keys, settings_.causal},
                             dropped, gradient);
  }
  if (factors.defined()) gradient.mul_(factors);
  const Tensor of_scores = gradient.view({-1, sizes_.keys});
  Tensor lines = begin_alike(of_scores, 1, 0);
  at::_softmax_backward_data_out(lines, lines, begin_alike(weights.view({-1, sizes_.keys}), 1, 0),
                                 1, weights.scalar_type());
  if (!lines.is_same(of_scores)) of_scores.copy_(lines.narrow(1, 0, sizes_.keys));
}

void Attention::backward(const Pass& pass, Stacks inputs, const Tensor& output,
                         const Tensor& output_gradient, Stacks input_gradients,
                         const GradientSink&) const {
  const Sizes& of = sizes_;
  const at::ScalarType type = output.scalar_type();
  const std::vector<Tensor>& saved = pass.saved.per_sample;
  const bool dropping = drops(pass);
  Tensor memory;
  for_blocks(output, inputs, scores(), [&](const Samples& some) {
    const Tensor weights = some.of(saved[0]);
    const Tensor dropped = dropping ? some.of(saved[1]) : weights;
    const std::int64_t count = weights.size(0) * of.heads;
    if (!memory.defined()) memory = at::empty(weights.sizes(), weights.options());
    const Tensor gradient = memory.narrow(0, 0, weights.size(0));
    const MatrixStack dy = matrices(some.of(output_gradient), of.queries, of.values);
    const MatrixStack of_scores = matrices(gradient, of.queries, of.keys);
    const auto product = [&](double alpha, const MatrixStack& a, Transpose transpose_a,
                             const MatrixStack& b, Transpose transpose_b, const MatrixStack& to) {
      batched_product(type, count, alpha, a, transpose_a, b, transpose_b, 0, to, pass.arithmetic);
    };
    if (input_gradients[2].defined()) {
      product(1, matrices(dropped, of.queries, of.keys), Transpose::Yes, dy, Transpose::No,
              matrices(some.of(input_gradients[2]), of.keys, of.values));
    }
    multiply_transposed(pass, 1, some.of(output_gradient), some.of(inputs[2]), of.values, gradient);
    weigh_back(weights, dropped, dropping ? some.of(saved[2]) : Tensor(), gradient);
    if (input_gradients[0].defined()) {
      product(settings_.scale, of_scores, Transpose::No,
              matrices(some.of(inputs[1]), of.keys, of.width), Transpose::No,
              matrices(some.of(input_gradients[0]), of.queries, of.width));
    }
    if (input_gradients[1].defined()) {
      product(settings_.scale, of_scores, Transpose::Yes,
              matrices(some.of(inputs[0]), of.queries, of.width), Transpose::No,
              matrices(some.of(input_gradients[1]), of.keys, of.width));
    }
    if (inputs.size() < 4 || !input_gradients[3].defined()) return;
    const Tensor of_mask = some.of(input_gradients[3]);
    const std::int64_t masks = settings_.mask == Mask::OfAllHeads ? 1 : of.heads;
    of_mask.copy_(gradient.narrow(1, 0, of_mask.size(1)));
    for (std::int64_t h = 1; masks == 1 && h < of.heads; ++h) {
      of_mask.add_(gradient.narrow(1, h * of.queries * of.keys, of.queries * of.keys));
    }
  });
}

}  // namespace fedhpc
