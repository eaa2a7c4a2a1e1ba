#pragma once

#include "fedhpc/algorithms/part_averaging.hpp"

namespace fedhpc {

/// LG-FedAvg: clients keep their own representation, the lower layers, and share what is above.
///
/// Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: "Think Locally, Act Globally:
/// Federated Learning with Local and Global Representations", arXiv:2001.01523, 2020, Algorithm 1.
///
///   paper                 code               meaning
///   theta^g               shared_            global model, the top layers
///   theta_m^l, theta_m^h  own_               local representation of client m
///   (layers kept)         algorithm.layers   how many top layers are global
///
/// Both are moved by the same local steps on the one supervised loss. A layer is what first_of_top
/// counts (models/layout.hpp), with its bias and the batch norm behind it. Statistics go where the
/// layer goes; train.buffers does not act. layers = 0 is LocalOnly, all layers FedAvg.
///
/// The paper starts its runs from a FedAvg model: model.init_file. Its auxiliary losses of the
/// representation and its ensemble for new clients are not here.
class LGFedAvg final : public PartAveraging {
 public:
  Traits traits() const override {
    Traits traits = PartAveraging::traits();
    const LayoutPtr& shared = shared_part().layout();
    traits.sends_buffers = !shared || shared->count(Tag::Buffer) > 0;
    return traits;
  }
  void declare(OptionSet& options) override;

 private:
  RowPart own_part(const LayoutPtr& model) const override;

  std::int64_t layers_ = 1;
};

}  // namespace fedhpc
