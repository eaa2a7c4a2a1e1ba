#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/core/device_kernels.hpp"

#include "training_setting.hpp"

namespace fedhpc::bench {

/// What a user of LibTorch writes for local training on a device: a module and a torch::optim::SGD
/// per client, one client after the other, batches by index_select from float32 images that lie on
/// the device; forward, cross-entropy, backward, update. The host does not wait in between.
class ClientLoop {
 public:
  /// Tf32 as at::globalContext() has it; Bf16 by autocast.
  ClientLoop(const TrainingSetting& setting, std::int64_t clients, std::int64_t steps, double lr,
             Precision precision);
  ~ClientLoop();

  /// Every client takes its steps from where it stands. Gives the sum of the losses, for which the
  /// host waits.
  double operator()();
  std::int64_t steps() const;  ///< of a call, of all clients

 private:
  struct Client;
  const TrainingSetting& setting_;
  std::int64_t steps_;
  Precision precision_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace fedhpc::bench
