#include "fedhpc/factorisations/update_map.hpp"

#include <ATen/ops/zeros.h>

namespace fedhpc {

UpdateMap::UpdateMap(FactorMap& updates, const at::TensorOptions& options)
    : updates_(updates), frozen_{at::zeros({1, updates.full()->size()}, options), updates.full()} {}

void UpdateMap::expand_(const Rows& u, const Rows& w) {
  updates_.expand_(u, w);
  add_(frozen_, w);
}

void UpdateMap::merge_(const Rows& u) { frozen_ = expand(u); }

void UpdateMap::pullback_(const Rows& u, const Rows& dw, const Rows& du) {
  updates_.pullback_(u, dw, du);
}

void UpdateMap::copy_passed_(const Rows& from, const Rows& to, Tag tag) const {
  updates_.copy_passed_(from, to, tag);
}

}  // namespace fedhpc
