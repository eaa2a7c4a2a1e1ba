#pragma once

#include "fedhpc/algorithms/fedavg_ft.hpp"

namespace fedhpc {

/// FedProx-FT: FedAvg-FT whose second training is FedProx's, held near the received model.
///
/// Sen, Mohan: "pFedSOP: Accelerating Training Of Personalized Federated Learning Using
/// Second-Order Optimization", section V-B2.
///
///   symbol    code              meaning
///   mu        algorithm.mu      weight of mu/2 ||w - w^t||^2 in the training of w_k; 0: FedAvg-FT,
///                               bit for bit
///   w_k       algorithm.start   fine_tuned: trained from u_k; received: from w^t, FedProx's round
///
/// The text does not say where the proximal term acts: fine-tuning, which is to fit the client's
/// data, has none.
class FedProxFT final : public FedAvgFT {
 public:
  void declare(OptionSet& options) override;

 private:
  Penalty penalty(const Rows& received) const override { return {.mu = mu_, .centre = received}; }

  double mu_ = 0.1;
};

}  // namespace fedhpc
