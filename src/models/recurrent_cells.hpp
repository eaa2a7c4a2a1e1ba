#pragma once

#include "fedhpc/core/tensor.hpp"

// One step of a recurrent cell, in host memory or on a device. Every tensor is [C, B, ...]; its
// last dimension is contiguous.

namespace fedhpc {

/// The gates [C, B, 4 H] hold sums, then i, f, g, o, and after backward the sums' gradients.
struct LstmStep {
  Tensor gates;
  Tensor before;    // cells of the step before, [C, B, H]
  Tensor cells;     // [C, B, H]
  Tensor squashed;  // tanh of them
};

void lstm_forward(const LstmStep& step, const Tensor& output);
/// `carry` is the part of the output's gradient that comes from later steps, `cell_carry` the
/// gradient of the cells, which becomes that of the cells before.
void lstm_backward(const LstmStep& step, const Tensor& output_gradient, const Tensor& carry,
                   const Tensor& cell_carry);

/// The shares of the input and of the hidden values in the gates' sums, [C, B, 3 H] each. The
/// first ones become r, z, n; after backward both hold their gradients.
struct GruStep {
  Tensor gates;
  Tensor shares;
  Tensor before;  // the output of the step before, [C, B, H]
};

void gru_forward(const GruStep& step, const Tensor& output);
/// `carry` becomes the gradient of `before` but for what comes through the shares.
void gru_backward(const GruStep& step, const Tensor& output_gradient, const Tensor& carry);

}  // namespace fedhpc
