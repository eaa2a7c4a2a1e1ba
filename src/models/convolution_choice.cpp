#include "models/convolution_choice.hpp"

#include <algorithm>
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

constexpr std::size_t kRepetitions = 3;
constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr int kRunsOfARestedDevice = 100;  ///< its clocks are slow at first

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

/// How a way did: milliseconds of device time of a run, or why there are none.
struct Trial {
  ConvolutionWay way;
  double milliseconds;
  std::string failure;
};

std::string text(const Trial& trial) {
  return trial.failure.empty() ? concat(name_of(trial.way), " ", trial.milliseconds, " ms")
                               : concat(name_of(trial.way), " failed (", trial.failure, ")");
}

/// Milliseconds of device time that `work` takes.
double time_of(at::Device device, const std::function<void()>& work) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end);
}

/// The time of a run in the middle of a few, replayed from a capture: that is how steps run, and it
/// leaves out what the host takes to enqueue the work. It comes after `before` others. One run
/// alone, where that takes more than twice `least`.
double time_of_run(at::Device device, const std::function<void()>& run, double least, int before) {
  run();  // libraries choose their kernels and memory is allocated
  const auto graph = device_kernels().capture(run);
  for (int i = 0; i < before; ++i) graph->replay();
  std::array<double, kRepetitions> times{};
  for (double& time : times) {
    time = time_of(device, [&] { graph->replay(); });
    if (time > 2 * least) return time;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Trial trial_of(ConvolutionWay way, at::Device device,
               const std::function<void(ConvolutionWay)>& run, double least, int before) {
  Trial trial{way, kNoTime, {}};
  try {
    trial.milliseconds = time_of_run(
        device, [&] { run(way); }, least, before);
  } catch (const std::exception& error) {  // for example beyond the device's memory
    const std::string_view message = error.what();
    trial.failure = message.substr(0, message.find('\n'));
  }
  return trial;
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

std::optional<ConvolutionWay> ConvolutionTrials::known(const ConvolutionCase& of) const {
  const auto found = known_.find(rounded(of));
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

ConvolutionWay ConvolutionTrials::fastest(const ConvolutionCase& of, at::Device device,
                                          const std::function<void(ConvolutionWay)>& run) {
  if (const auto way = known(of)) return *way;
  const ConvolutionCase key = rounded(of);
  int before = known_.empty() ? kRunsOfARestedDevice : 1;
  Trial best{ConvolutionWay::Unfolded, kNoTime, {}};
  std::string report;
  for (const ConvolutionWay way : kConvolutionWays) {
    if (!worth_a_trial(of, way)) continue;
    const Trial trial = trial_of(way, device, run, best.milliseconds, before);
    before = 1;
    report += concat(report.empty() ? "" : ", ", text(trial));
    if (trial.milliseconds < best.milliseconds) best = trial;
  }
  known_.emplace(key, best.way);
  run_log().debug("convolutions: ", text(key), ": ", report, ": ", name_of(best.way));
  return best.way;
}

}  // namespace fedhpc
