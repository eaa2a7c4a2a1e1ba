#include "reference/link.hpp"

#include <ATen/ATen.h>

namespace fedhpc::reference {

Link::Link(const Problem& problem, const Tensor& start, const LinkSettings& settings)
    : settings_(settings),
      compressed_(trainable_columns(problem, /*norms=*/false)),
      known_(problem.clients.size(), start),
      kept_(problem.clients.size(), settings.models ? start : at::zeros_like(start)) {}

Tensor Link::largest(const Tensor& x, std::int64_t k) const {
  const Tensor kept = std::get<1>(x.index_select(0, compressed_).abs().topk(k));
  const Tensor places = compressed_.index_select(0, kept);
  return x.index_fill(0, compressed_, 0).index_copy(0, places, x.index_select(0, places));
}

Tensor Link::down(std::int64_t i, const Tensor& w) {
  Tensor& has = known_[static_cast<std::size_t>(i)];
  has = settings_.k_down == 0 ? w : has + largest(w - has, settings_.k_down);
  return has;
}

Tensor Link::up(std::int64_t i, const Tensor& x) {
  Tensor& state = kept_[static_cast<std::size_t>(i)];
  Tensor read = largest(x, settings_.k);
  if (settings_.feedback == Feedback::Ef14) {
    read = largest(state + x, settings_.k);
    state = state + x - read;
  } else if (settings_.feedback == Feedback::Ef21) {
    read = state + largest(x - state, settings_.k);
    state = read;
  }
  return read;
}

Parameters received(Link* link, std::int64_t client, const Parameters& model) {
  return link == nullptr ? model : unflatten(link->down(client, flatten(model)), model);
}

Parameters read(Link* link, std::int64_t client, const Parameters& model) {
  return link == nullptr ? model : unflatten(link->up(client, flatten(model)), model);
}

}  // namespace fedhpc::reference
