#include "models/recurrent_cells.hpp"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include "fedhpc/core/device.hpp"

#include "math/exponential.hpp"

namespace fedhpc {

namespace {

template <typename T>
FEDHPC_INLINE void lstm_row(T* __restrict i, T* __restrict f, T* __restrict g, T* __restrict o,
                            const T* __restrict before, T* __restrict cells, T* __restrict squashed,
                            T* __restrict output, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    i[j] = sigmoid_of(i[j]);
    f[j] = sigmoid_of(f[j]);
    g[j] = tanh_of(g[j]);
    o[j] = sigmoid_of(o[j]);
    cells[j] = f[j] * before[j] + i[j] * g[j];
    squashed[j] = tanh_of(cells[j]);
    output[j] = o[j] * squashed[j];
  }
}

template <typename T>
FEDHPC_INLINE void lstm_row_back(T* __restrict i, T* __restrict f, T* __restrict g, T* __restrict o,
                                 const T* __restrict before, const T* __restrict squashed,
                                 const T* __restrict dy, const T* __restrict carry,
                                 T* __restrict cell_carry, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const T dh = dy[j] + carry[j];
    const T dc = cell_carry[j] + dh * o[j] * (1 - squashed[j] * squashed[j]);
    const T di = dc * g[j];
    const T df = dc * before[j];
    const T dg = dc * i[j];
    const T d_o = dh * squashed[j];
    cell_carry[j] = dc * f[j];
    i[j] = di * i[j] * (1 - i[j]);
    f[j] = df * f[j] * (1 - f[j]);
    g[j] = dg * (1 - g[j] * g[j]);
    o[j] = d_o * o[j] * (1 - o[j]);
  }
}

template <typename T>
FEDHPC_INLINE void gru_row(T* __restrict r, T* __restrict z, T* __restrict n,
                           const T* __restrict r_share, const T* __restrict z_share,
                           const T* __restrict n_share, const T* __restrict before,
                           T* __restrict output, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    r[j] = sigmoid_of(r[j] + r_share[j]);
    z[j] = sigmoid_of(z[j] + z_share[j]);
    n[j] = tanh_of(n[j] + r[j] * n_share[j]);
    output[j] = n[j] + z[j] * (before[j] - n[j]);
  }
}

template <typename T>
FEDHPC_INLINE void gru_row_back(T* __restrict r, T* __restrict z, T* __restrict n,
                                T* __restrict r_share, T* __restrict z_share, T* __restrict n_share,
                                const T* __restrict before, const T* __restrict dy,
                                T* __restrict carry, std::int64_t hidden) {
  for (std::int64_t j = 0; j < hidden; ++j) {
    const T dh = dy[j] + carry[j];
    const T dn = dh * (1 - z[j]) * (1 - n[j] * n[j]);
    const T dr = dn * n_share[j] * r[j] * (1 - r[j]);
    const T dz = dh * (before[j] - n[j]) * z[j] * (1 - z[j]);
    carry[j] = dh * z[j];
    n_share[j] = dn * r[j];
    r_share[j] = r[j] = dr;
    z_share[j] = z[j] = dz;
    n[j] = dn;
  }
}

/// The rows of a client's samples at one place.
template <typename T>
struct SampleRows {
  explicit SampleRows(const Tensor& stack, std::int64_t c)
      : data(static_cast<T*>(stack.data_ptr()) + c * stack.stride(0)), stride(stack.stride(1)) {}
  T* operator[](std::int64_t b) const { return data + b * stride; }

  T* data;
  std::int64_t stride;
};

template <typename T>
FEDHPC_INLINE void lstm_rows(const LstmStep& step, const Tensor& output, std::int64_t c) {
  const SampleRows<T> gates(step.gates, c), before(step.before, c), cells(step.cells, c);
  const SampleRows<T> squashed(step.squashed, c), out(output, c);
  const std::int64_t hidden = output.size(2);
  for (std::int64_t b = 0; b < output.size(1); ++b) {
    T* of = gates[b];
    lstm_row(of, of + hidden, of + 2 * hidden, of + 3 * hidden, before[b], cells[b], squashed[b],
             out[b], hidden);
  }
}

template <typename T>
FEDHPC_INLINE void lstm_rows_back(const LstmStep& step, const Tensor& dy, const Tensor& carry,
                                  const Tensor& cell_carry, std::int64_t c) {
  const SampleRows<T> gates(step.gates, c), before(step.before, c), squashed(step.squashed, c);
  const SampleRows<T> gradient(dy, c), later(carry, c), later_cells(cell_carry, c);
  const std::int64_t hidden = dy.size(2);
  for (std::int64_t b = 0; b < dy.size(1); ++b) {
    T* of = gates[b];
    lstm_row_back(of, of + hidden, of + 2 * hidden, of + 3 * hidden, before[b], squashed[b],
                  gradient[b], later[b], later_cells[b], hidden);
  }
}

template <typename T>
FEDHPC_INLINE void gru_rows(const GruStep& step, const Tensor& output, std::int64_t c) {
  const SampleRows<T> gates(step.gates, c), shares(step.shares, c), before(step.before, c);
  const SampleRows<T> out(output, c);
  const std::int64_t hidden = output.size(2);
  for (std::int64_t b = 0; b < output.size(1); ++b) {
    T* of = gates[b];
    T* share = shares[b];
    gru_row(of, of + hidden, of + 2 * hidden, share, share + hidden, share + 2 * hidden, before[b],
            out[b], hidden);
  }
}

template <typename T>
FEDHPC_INLINE void gru_rows_back(const GruStep& step, const Tensor& dy, const Tensor& carry,
                                 std::int64_t c) {
  const SampleRows<T> gates(step.gates, c), shares(step.shares, c), before(step.before, c);
  const SampleRows<T> gradient(dy, c), later(carry, c);
  const std::int64_t hidden = dy.size(2);
  for (std::int64_t b = 0; b < dy.size(1); ++b) {
    T* of = gates[b];
    T* share = shares[b];
    gru_row_back(of, of + hidden, of + 2 * hidden, share, share + hidden, share + 2 * hidden,
                 before[b], gradient[b], later[b], hidden);
  }
}

template <typename T>
FEDHPC_WIDE void wide_lstm_rows(const LstmStep& step, const Tensor& output, std::int64_t c) {
  lstm_rows<T>(step, output, c);
}
template <typename T>
FEDHPC_WIDE void wide_lstm_rows_back(const LstmStep& step, const Tensor& dy, const Tensor& carry,
                                     const Tensor& cell_carry, std::int64_t c) {
  lstm_rows_back<T>(step, dy, carry, cell_carry, c);
}
template <typename T>
FEDHPC_WIDE void wide_gru_rows(const GruStep& step, const Tensor& output, std::int64_t c) {
  gru_rows<T>(step, output, c);
}
template <typename T>
FEDHPC_WIDE void wide_gru_rows_back(const GruStep& step, const Tensor& dy, const Tensor& carry,
                                    std::int64_t c) {
  gru_rows_back<T>(step, dy, carry, c);
}

/// Part k of `of` in a gates' stack [C, B, of H].
Tensor part(const Tensor& gates, std::int64_t k, std::int64_t of) {
  const std::int64_t hidden = gates.size(2) / of;
  return gates.narrow(2, k * hidden, hidden);
}

}  // namespace

void lstm_forward(const LstmStep& step, const Tensor& output) {
  if (!on_device(output)) {
    return with_type(output.scalar_type(), [&]<typename T>() {
      const auto run = has_wide_vectors() ? wide_lstm_rows<T> : lstm_rows<T>;
      for (std::int64_t c = 0; c < output.size(0); ++c) run(step, output, c);
    });
  }
  step.gates.narrow(2, 0, 2 * output.size(2)).sigmoid_();
  part(step.gates, 2, 4).tanh_();
  part(step.gates, 3, 4).sigmoid_();
  Tensor cells = step.cells;
  Tensor squashed = step.squashed;
  Tensor out = output;
  at::mul_out(cells, part(step.gates, 1, 4), step.before);
  cells.addcmul_(part(step.gates, 0, 4), part(step.gates, 2, 4));
  at::tanh_out(squashed, cells);
  at::mul_out(out, part(step.gates, 3, 4), squashed);
}

void lstm_backward(const LstmStep& step, const Tensor& output_gradient, const Tensor& carry,
                   const Tensor& cell_carry) {
  if (!on_device(carry)) {
    return with_type(carry.scalar_type(), [&]<typename T>() {
      const auto run = has_wide_vectors() ? wide_lstm_rows_back<T> : lstm_rows_back<T>;
      for (std::int64_t c = 0; c < carry.size(0); ++c) {
        run(step, output_gradient, carry, cell_carry, c);
      }
    });
  }
  Tensor i = part(step.gates, 0, 4);
  Tensor f = part(step.gates, 1, 4);
  Tensor g = part(step.gates, 2, 4);
  Tensor o = part(step.gates, 3, 4);
  carry.add_(output_gradient);
  cell_carry.add_(at::tanh_backward(carry.mul(o), step.squashed));
  at::sigmoid_backward_out(o, carry.mul(step.squashed), o);
  const Tensor of_g = cell_carry.mul(i);
  at::sigmoid_backward_out(i, cell_carry.mul(g), i);
  at::tanh_backward_out(g, of_g, g);
  const Tensor of_f = cell_carry.mul(step.before);
  cell_carry.mul_(f);
  at::sigmoid_backward_out(f, of_f, f);
}

void gru_forward(const GruStep& step, const Tensor& output) {
  if (!on_device(output)) {
    return with_type(output.scalar_type(), [&]<typename T>() {
      const auto run = has_wide_vectors() ? wide_gru_rows<T> : gru_rows<T>;
      for (std::int64_t c = 0; c < output.size(0); ++c) run(step, output, c);
    });
  }
  const std::int64_t hidden = output.size(2);
  step.gates.narrow(2, 0, 2 * hidden).add_(step.shares.narrow(2, 0, 2 * hidden)).sigmoid_();
  const Tensor n = part(step.gates, 2, 3);
  n.addcmul_(part(step.gates, 0, 3), part(step.shares, 2, 3)).tanh_();
  output.copy_(n.addcmul(part(step.gates, 1, 3), step.before.sub(n)));
}

void gru_backward(const GruStep& step, const Tensor& output_gradient, const Tensor& carry) {
  if (!on_device(carry)) {
    return with_type(carry.scalar_type(), [&]<typename T>() {
      const auto run = has_wide_vectors() ? wide_gru_rows_back<T> : gru_rows_back<T>;
      for (std::int64_t c = 0; c < carry.size(0); ++c) run(step, output_gradient, carry, c);
    });
  }
  Tensor r = part(step.gates, 0, 3);
  Tensor z = part(step.gates, 1, 3);
  Tensor n = part(step.gates, 2, 3);
  const Tensor n_share = part(step.shares, 2, 3);
  carry.add_(output_gradient);
  const Tensor of_z = carry.mul(step.before.sub(n));
  const Tensor of_n = at::tanh_backward(carry.sub(carry.mul(z)), n);
  carry.mul_(z);
  at::sigmoid_backward_out(z, of_z, z);
  n.copy_(of_n);
  const Tensor of_r = of_n.mul(n_share);
  n_share.copy_(of_n.mul(r));
  at::sigmoid_backward_out(r, of_r, r);
  const std::int64_t hidden = carry.size(2);
  step.shares.narrow(2, 0, 2 * hidden).copy_(step.gates.narrow(2, 0, 2 * hidden));
}

}  // namespace fedhpc
