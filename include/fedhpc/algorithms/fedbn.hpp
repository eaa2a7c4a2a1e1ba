#pragma once

#include "fedhpc/algorithms/part_averaging.hpp"

namespace fedhpc {

/// FedBN: federated averaging but for batch norm, which stays with the clients.
///
/// Li, Jiang, Zhang, Kamp, Dou: "FedBN: Federated Learning on Non-IID Features via Local Batch
/// Normalization", ICLR 2021, Algorithm 1.
///
///   paper                    code       meaning
///   w^(l), l not BN          shared_    all other layers
///   w_k^(l), l BN            own_       scales, shifts and running statistics of client k
///   E                        train.local_epochs or local_steps
///
/// Other norms (group, layer, instance) stay with the clients as batch norm does; the paper has
/// none. A model without norms is FedAvg.
///
/// Deviation: clients are averaged by algorithm.weighting (in the paper equally).
class FedBN final : public PartAveraging {
 public:
  Traits traits() const override {
    Traits traits = PartAveraging::traits();
    traits.sends_buffers = false;
    return traits;
  }
  void declare(OptionSet& options) override;

 private:
  RowPart own_part(const LayoutPtr& model) const override;
};

}  // namespace fedhpc
