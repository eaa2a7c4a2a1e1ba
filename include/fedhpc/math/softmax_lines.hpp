#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// x of a device as LibTorch's softmax over `dimension` is to have it. It sums a long line without
/// others beside it in an order that follows from where in 16 bytes the line begins. So such lines
/// come back with `filling` behind each, up to whole 16 bytes, as a copy; other ones as they are.
Tensor begin_alike(const Tensor& x, std::int64_t dimension, double filling);

/// log softmax(z) over the last dimension of z on a device, whose first number lies on 16 bytes. What a
/// line gets depends on its own values alone, to the last bit.
Tensor log_softmax_on_device(const Tensor& z);

}  // namespace fedhpc
