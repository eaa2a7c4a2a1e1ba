#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fedhpc/factorisations/factor_map.hpp"

namespace fedhpc {

/// Maps updates of frozen models: w = W + expand(u), where W is the same for all clients, but for the
/// columns that pass through.
class UpdateMap final : public RowMap {
 public:
  /// `updates` outlives it. W is 0 at first, of the type and on the device of these options.
  UpdateMap(FactorMap& updates, const at::TensorOptions& options);

  /// W, [1, P]; its columns that pass through are not read.
  const Rows& frozen() const { return frozen_; }
  Rows& frozen() { return frozen_; }
  /// W <- W + expand(u), u [1, Q].
  void merge_(const Rows& u);

  const LayoutPtr& full() const override { return updates_.full(); }
  const LayoutPtr& factors() const override { return updates_.factors(); }
  ColumnRanges other_columns() const override { return updates_.other_columns(); }
  void expand_(const Rows& u, const Rows& w) override;
  void pullback_(const Rows& u, const Rows& dw, const Rows& du) override;
  void copy_passed_(const Rows& from, const Rows& to, Tag tag) const override;

 private:
  FactorMap& updates_;
  Rows frozen_;
};

}  // namespace fedhpc
