#pragma once

#include "gpu/kernels/kernel.hpp"

// Values of activations one by one: ReLU, biases, turned layouts.

namespace fedhpc::kernels {

template <typename T, int N>
struct ReluForward {
  StackIndex index;  // of packs
  Samples<const T> x;
  Samples<T> y;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    Pack<T, N> pack = load<T, N>(x(at.client, at.sample) + at.value * N);
    // Written so that NaN stays NaN: a diverged model must show.
    for (T& value : pack.value) value = value < T{0} ? T{0} : value;
    store(y(at.client, at.sample) + at.value * N, pack);
  }
};

template <typename T, int N>
struct ReluBackward {
  StackIndex index;
  Samples<const T> y;
  Samples<const T> dy;
  Samples<T> dx;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    const Pack<T, N> out = load<T, N>(y(at.client, at.sample) + at.value * N);
    Pack<T, N> gradient = load<T, N>(dy(at.client, at.sample) + at.value * N);
    for (int k = 0; k < N; ++k) gradient.value[k] = out.value[k] > T{0} ? gradient.value[k] : T{0};
    store(dx(at.client, at.sample) + at.value * N, gradient);
  }
};

template <typename T, int N>
struct AddBias {
  StackIndex index;
  Divisor places;
  Samples<T> y;  // or the rows that images by channels are
  Columns<const T> bias;
  bool by_channels;
  bool relu;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    T* values = y(at.client, at.sample) + at.value * N;
    const T* of = bias(at.client);
    Pack<T, N> pack = load<T, N>(values);
    for (int k = 0; k < N; ++k) {
      T& value = pack.value[k];
      value += of[by_channels ? at.sample : places(at.value * N + k).quotient];
      if (relu) value = value < T{0} ? T{0} : value;
    }
    store(values, pack);
  }
};

/// The bias gradient of one channel where a channel is one value: a thread goes down the batch,
/// as threads beside each other read values beside each other.
template <typename T>
struct SumOverBatch {
  Divisor channels;
  std::int64_t batch;
  Images<const T> dy;
  Sink<T> sink;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split at = channels(i);
    T sum{0};
    for (std::int64_t b = 0; b < batch; ++b) sum += *dy(at.quotient, b, at.rest);
    sink.write(sum, sink.out(at.quotient)[at.rest]);
  }
};

/// The same after a ReLU, whose gradient takes the place of dy.
template <typename T>
struct RectifiedSumOverBatch {
  Divisor channels;
  std::int64_t batch;
  Images<const T> y;
  Images<T> dy;
  Sink<T> sink;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    constexpr int kAtOnce =
        8;  // read together, ahead of the writes that might be to the same place
    const Split at = channels(i);
    T sum{0};
    for (std::int64_t first = 0; first < batch; first += kAtOnce) {
      const auto count = static_cast<int>(batch - first < kAtOnce ? batch - first : kAtOnce);
      T gradient[kAtOnce] = {};
      for (int k = 0; k < kAtOnce; ++k) {
        if (k < count) {
          const T value = *y(at.quotient, first + k, at.rest);
          const T given = *dy(at.quotient, first + k, at.rest);
          gradient[k] = value > T{0} ? given : T{0};
        }
      }
      for (int k = 0; k < kAtOnce; ++k) {
        if (k < count) {
          *dy(at.quotient, first + k, at.rest) = gradient[k];
          sum += gradient[k];
        }
      }
    }
    sink.write(sum, sink.out(at.quotient)[at.rest]);
  }
};

/// The same of a channel of many places, by a group.
template <typename T>
struct SumOverPlaces {
  Divisor channels;
  Divisor places;
  std::int64_t batch;
  std::int64_t count;  // places
  Images<const T> dy;
  Sink<T> sink;

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const Split at = channels(g);
    double part = 0;
    for (std::int64_t i = group.rank(); i < batch * count; i += group.size()) {
      const Split place = places(i);
      part += static_cast<double>(dy(at.quotient, place.quotient, at.rest)[place.rest]);
    }
    const double sum = group.sum(part);
    if (group.rank() == 0) sink.write(static_cast<T>(sum), sink.out(at.quotient)[at.rest]);
  }
};

/// Where value i of a channel-major matrix stack [C, channels, batch, places] lies in [C, B,
/// channels places].
struct TurnIndex {
  Divisor channels;
  Divisor batch;
  Divisor places;  // in packs
  std::int64_t count;

  struct At {
    std::int64_t client;
    std::int64_t channel;
    std::int64_t sample;
    std::int64_t value;  // in the sample, in packs
  };
  FEDHPC_KERNEL At operator()(std::int64_t i) const {
    const Split by_place = places(i);
    const Split by_sample = batch(by_place.quotient);
    const Split by_channel = channels(by_sample.quotient);
    return {by_channel.quotient, by_channel.rest, by_sample.rest,
            by_channel.rest * count + by_place.rest};
  }
};

template <typename T, int N>
struct TurnTo {
  TurnIndex index;
  Samples<const T> stack;
  T* channel_major;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    store(channel_major + i * N, load<T, N>(stack(at.client, at.sample) + at.value * N));
  }
};

template <typename T, int N>
struct TurnFrom {
  TurnIndex index;
  Samples<T> stack;
  const T* channel_major;
  Columns<const T> bias;

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const auto at = index(i);
    Pack<T, N> pack = load<T, N>(channel_major + i * N);
    if (bias.data != nullptr) {
      const T shift = bias(at.client)[at.channel];
      for (T& value : pack.value) value += shift;
    }
    store(stack(at.client, at.sample) + at.value * N, pack);
  }
};

}  // namespace fedhpc::kernels
