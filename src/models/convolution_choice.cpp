#include "models/convolution_choice.hpp"

#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

namespace fedhpc {

namespace {

constexpr int kRepetitions = 3;

/// As FEDHPC_CONVOLUTION has it.
const char* name_of(ConvolutionWay way) {
  constexpr std::array<const char*, 5> kNames{"unfolded", "loop", "loop_channels_last", "grouped",
                                              "grouped_channels_last"};
  return kNames[static_cast<std::size_t>(way)];
}

const char* name_of(ConvolutionDirection direction) {
  constexpr std::array<const char*, 3> kNames{"output", "weights' gradient", "input's gradient"};
  return kNames[static_cast<std::size_t>(direction)];
}

std::string text(const ConvolutionCase& of) {
  return concat(name_of(of.direction), " of ", of.in_channels, "x", of.in_height, "x", of.in_width,
                " to ", of.out_channels, " channels, window ", of.window.size.height, "x",
                of.window.size.width, ", groups ", of.groups, ", blocks of ", of.clients,
                ", batches of ", of.batch);
}

std::int64_t up_to_power_of_two(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(number)));
}

/// Ragged batches make many numbers of clients and samples: they share their trials.
ConvolutionCase rounded(ConvolutionCase of) {
  of.clients = up_to_power_of_two(of.clients);
  of.batch = up_to_power_of_two(of.batch);
  return of;
}

/// With one client, the groups of one convolution are the loop; channels come last for what the
/// libraries' kernels of float32 and shorter gain by it.
bool worth_a_trial(const ConvolutionCase& of, ConvolutionWay way) {
  const bool grouped = way == ConvolutionWay::Grouped || way == ConvolutionWay::GroupedChannelsLast;
  const bool last =
      way == ConvolutionWay::LoopChannelsLast || way == ConvolutionWay::GroupedChannelsLast;
  return !(grouped && of.clients == 1) && !(last && of.type == DType::Float64);
}

/// Milliseconds of device time of a few runs, replayed from a capture: that is how steps run, and
/// it leaves out what the host takes to enqueue the work.
double time_of(at::Device device, const std::function<void()>& run) {
  run();  // libraries choose their kernels and memory is allocated
  const auto graph = device_kernels().capture(run);
  graph->replay();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  for (int i = 0; i < kRepetitions; ++i) graph->replay();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end);
}

ConvolutionWay measured(const ConvolutionCase& of, at::Device device,
                        const std::function<void(ConvolutionWay)>& run) {
  ConvolutionWay best = ConvolutionWay::Unfolded;
  double least = std::numeric_limits<double>::infinity();
  for (const ConvolutionWay way : kConvolutionWays) {
    if (!worth_a_trial(of, way)) continue;
    double time = least;
    try {
      time = time_of(device, [&] { run(way); });
    } catch (const std::exception&) {
      continue;  // for example beyond the device's memory: another way is taken
    }
    if (time < least) {
      least = time;
      best = way;
    }
  }
  return best;
}

}  // namespace

std::optional<ConvolutionWay> forced_convolution() {
  const char* chosen = std::getenv("FEDHPC_CONVOLUTION");
  if (chosen == nullptr || *chosen == '\0') return std::nullopt;
  for (const ConvolutionWay way : kConvolutionWays) {
    if (name_of(way) == std::string_view(chosen)) return way;
  }
  throw Error(concat("FEDHPC_CONVOLUTION = ", chosen,
                     "; allowed: unfolded, loop, loop_channels_last, grouped, "
                     "grouped_channels_last"));
}

ConvolutionWay ConvolutionTrials::fastest(const ConvolutionCase& of, at::Device device,
                                          const std::function<void(ConvolutionWay)>& run) {
  const ConvolutionCase key = rounded(of);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  const ConvolutionWay way = measured(of, device, run);
  known_.emplace(key, way);
  run_log().debug("convolutions: ", text(key), ": ", name_of(way));
  return way;
}

}  // namespace fedhpc
