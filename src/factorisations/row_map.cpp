#include "fedhpc/factorisations/row_map.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

Rows RowMap::expand(const Rows& u) {
  Rows w{at::empty({u.count(), full()->size()}, u.values.options()), full()};
  expand_(u, w);
  return w;
}

}  // namespace fedhpc
