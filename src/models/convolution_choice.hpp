#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include <c10/core/Device.h>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/models/window.hpp"

#include "models/kept_columns.hpp"

// Computes the convolutions of many clients on a device in the fastest way. That depends on the
// shape, on the number of clients and on the libraries' versions, so it is measured.

namespace fedhpc {

/// LibTorch's convolutions run client by client or as the groups of one, with images in PyTorch's
/// order or the channels last. The other way is unfolding and a product of all clients.
enum class ConvolutionWay { Unfolded, Loop, LoopChannelsLast, Grouped, GroupedChannelsLast };
inline constexpr ConvolutionWay kConvolutionWays[] = {
    ConvolutionWay::Unfolded, ConvolutionWay::Loop, ConvolutionWay::LoopChannelsLast,
    ConvolutionWay::Grouped, ConvolutionWay::GroupedChannelsLast};

enum class ConvolutionDirection { Forward, WeightGradient, InputGradient };

/// The fastest way depends on these.
struct ConvolutionCase {
  ConvolutionDirection direction;
  std::int64_t in_channels;
  std::int64_t in_height;
  std::int64_t in_width;
  std::int64_t out_channels;
  Window window;
  std::int64_t groups;
  std::int64_t clients;
  std::int64_t batch;
  DType type;
  Precision precision;

  auto operator<=>(const ConvolutionCase&) const = default;
};

/// That of the environment variable FEDHPC_CONVOLUTION, if it is set: unfolded, loop,
/// loop_channels_last, grouped, grouped_channels_last.
std::optional<ConvolutionWay> forced_convolution();

/// What the convolutions of a model share on a device: the ways that were measured, and the room for
/// columns. One belongs to a model and ends with it.
class ConvolutionTrials {
 public:
  /// The fastest way of a case, measured by `run` at its first use, for all clients and batches up
  /// to the next power of two; the host waits. A way that fails is not taken. `run` may be called
  /// any number of times.
  ConvolutionWay fastest(const ConvolutionCase& of, at::Device device,
                         const std::function<void(ConvolutionWay)>& run);
  /// The fastest way of a case that has been measured.
  std::optional<ConvolutionWay> known(const ConvolutionCase& of) const;
  const KeptColumns::Total& kept_bytes() const { return kept_bytes_; }

 private:
  std::map<ConvolutionCase, ConvolutionWay> known_;
  KeptColumns::Total kept_bytes_ = std::make_shared<KeptColumns::Room>();
};

}  // namespace fedhpc
