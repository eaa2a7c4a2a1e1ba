#pragma once

#include "fedhpc/core/range.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Maps other rows [C, Q] to whole models [C, P]; local training moves the rows in the place of the
/// weights. Some columns pass through: they are the same in both, buffers among them.
class RowMap {
 public:
  virtual ~RowMap() = default;

  virtual const LayoutPtr& full() const = 0;     ///< P columns
  virtual const LayoutPtr& factors() const = 0;  ///< Q columns
  /// The columns of full rows that do not pass through.
  virtual ColumnRanges other_columns() const = 0;

  /// w <- the models that u stands for.
  virtual void expand_(const Rows& u,       // [C, Q]
                       const Rows& w) = 0;  // [C, P]
  Rows expand(const Rows& u);               // [C, Q] -> [C, P]
  /// w <- w + base where columns do not pass through.
  void add_(const Rows& base,      // [C, P] or [1, P]
            const Rows& w) const;  // [C, P]
  /// du <- the gradients with respect to u, from those with respect to the weights, dw.
  virtual void pullback_(const Rows& u,        // [C, Q]
                         const Rows& dw,       // [C, P]
                         const Rows& du) = 0;  // [C, Q]
  /// Copies the passed-through columns that carry `tag` (Tag::None: all), from rows of factors to
  /// rows of weights or the other way.
  virtual void copy_passed_(const Rows& from, const Rows& to, Tag tag) const = 0;
};

}  // namespace fedhpc
