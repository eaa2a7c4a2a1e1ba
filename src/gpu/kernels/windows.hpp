#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// The windows of one side that reach over a place; with dilation some step over it.
struct Holders {
  std::int64_t first;
  std::int64_t last;
};

struct HoldersOf {
  std::int64_t span;
  std::int64_t padding;
  std::int64_t windows;
  Divisor stride;

  HoldersOf(const WindowSide& side, std::int64_t outputs)
      : span(side.span()), padding(side.padding), windows(outputs), stride(side.stride) {}

  FEDHPC_KERNEL Holders operator()(std::int64_t place) const {
    const std::int64_t padded = place + padding;
    return {padded < span ? 0 : stride(padded - span).quotient + 1,
            smaller(stride(padded).quotient, windows - 1)};
  }
};

}  // namespace fedhpc::kernels
