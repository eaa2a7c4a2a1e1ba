// The ranks of a run, with its GPUs where it uses them.

#include <cstdlib>
#include <string_view>

#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "app/carry_out.hpp"

namespace fedhpc {

namespace {

/// A scheduler has given the job GPUs, the run could use them, and nobody has said that it shall not.
void tell_of_idle_gpus(const Config& config) {
  const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string_view gpus = named == nullptr ? "" : named;
  if (gpus.empty() || gpus == "-1" || gpus == "NoDevFiles" || config.model.by_autograd()) return;
  try {
    if (gpu_library().devices() == 0) return;
  } catch (const Error&) {  // this build or this host has no CUDA
    return;
  }
  run_log().of_run(LogLevel::Note,
                   concat("the job has GPUs (CUDA_VISIBLE_DEVICES = ", gpus,
                          ") and trains on the CPU; run.device = cuda uses them, cpu is silent"));
}

}  // namespace

std::unique_ptr<Communicator> run_communicator(const Config& config) {
  std::unique_ptr<Communicator> world = world_communicator(config.run.collective_timeout);
  if (config.run.device != DeviceKind::Cuda) {
    if (config.run.device == DeviceKind::Auto && world->rank() == 0) tell_of_idle_gpus(config);
    return world;
  }
  return device_communicator(std::move(world), gpu_library());
}

}  // namespace fedhpc
