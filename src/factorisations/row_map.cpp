#include "fedhpc/factorisations/row_map.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

Rows RowMap::expand(const Rows& u) {
  Rows w{at::empty({u.count(), full()->size()}, u.values.options()), full()};
  expand_(u, w);
  return w;
}

void RowMap::add_(const Rows& base, const Rows& w) const {
  for (const auto& [begin, end] : other_columns()) {
    w.values.narrow(1, begin, end - begin).add_(base.values.narrow(1, begin, end - begin));
  }
}

}  // namespace fedhpc
