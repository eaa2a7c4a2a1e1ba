#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

inline std::int64_t places_of(const DeviceImage& image) { return image.height * image.width; }

/// Value i of [C, B, channels, height, width], or of [C, channels, B, height, width] where what it
/// is the index of lies by channels: threads beside each other have values beside each other.
struct ImageIndex {
  Divisor width;
  Divisor height;
  Divisor inner;  // channels, or samples
  Divisor outer;
  bool by_channels;

  ImageIndex(const DeviceStack& of, const DeviceImage& image)
      : width(image.width),
        height(image.height),
        inner(of.channel_stride == 0 ? image.channels : of.batch),
        outer(of.channel_stride == 0 ? of.batch : image.channels),
        by_channels(of.channel_stride != 0) {}

  struct At {
    std::int64_t client;
    std::int64_t sample;
    std::int64_t channel;
    std::int64_t row;
    std::int64_t column;
  };
  FEDHPC_KERNEL At operator()(std::int64_t i) const {
    const Split by_column = width(i);
    const Split by_row = height(by_column.quotient);
    const Split plane = inner(by_row.quotient);
    const Split client = outer(plane.quotient);
    return {client.quotient, by_channels ? plane.rest : client.rest,
            by_channels ? client.rest : plane.rest, by_row.rest, by_column.rest};
  }
};

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
