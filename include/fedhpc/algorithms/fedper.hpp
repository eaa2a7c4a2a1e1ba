#pragma once

#include "fedhpc/algorithms/part_averaging.hpp"

namespace fedhpc {

/// FedPer: clients share the base layers and keep the top ones, trained together.
///
/// Arivazhagan, Aggarwal, Singh, Choudhary: "Federated Learning with Personalization Layers",
/// arXiv:1912.00818, 2019, Algorithms 1 and 2.
///
///   paper     code               meaning
///   W_B       shared_            base layers
///   W_Pj      own_               personalization layers of client j
///   K_P       algorithm.layers   how many those are, the classifier among them
///   e         train.local_epochs
///   gamma_j   algorithm.weighting = samples
///
/// A client takes its local steps on all of (W_B, W_Pj), and sends W_B alone. A layer is what
/// first_of_top counts (models/layout.hpp), with its bias and the batch norm behind it, whose
/// statistics go where the layer goes. layers = 0 is FedAvg, all layers LocalOnly.
///
/// The paper counts the blocks of ResNet-34 as layers; here each of their convolutions counts.
class FedPer final : public PartAveraging {
 public:
  void declare(OptionSet& options) override;

 private:
  RowPart own_part(const LayoutPtr& model) const override;

  std::int64_t layers_ = 1;
};

}  // namespace fedhpc
