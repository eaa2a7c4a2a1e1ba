#pragma once

#include "fedhpc/algorithms/factor_averaging.hpp"

namespace fedhpc {

/// FedPara: N. Hyeon-Woo, M. Ye-Bin, T.-H. Oh: "FedPara: Low-Rank Hadamard Product for
/// Communication-Efficient Federated Learning", ICLR 2022. A model whose layers are elementwise
/// products of two low-rank tensors (Hadamard), trained by federated averaging of the factors.
///
/// Deviation: without the paper's tanh, which it offers for one of the two tensors.
class FedPara final : public FactorAveraging {
 public:
  FactorisationUse factorisations() const override {
    return {.names = {"hadamard"}, .exclude = {"first", "last"}};
  }
  /// Also both low-rank tensors, and a gradient of one.
  RowsInHand rows_in_hand() const override {
    RowsInHand rows = FactorAveraging::rows_in_hand();
    rows.full += 3;
    return rows;
  }
};

}  // namespace fedhpc
