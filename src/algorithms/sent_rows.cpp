#include "fedhpc/algorithms/sent_rows.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace fedhpc {

void SentRows::add(const Block& block, std::span<const double> weights, const Rows& rows) {
  for (std::int64_t c = 0; c < block.count(); ++c) {
    const auto place = static_cast<std::size_t>(c);
    if (weights[place] == 0) continue;
    clients_.push_back(block.clients()[place]);
    weights_.push_back(weights[place]);
    rows_.push_back(rows.values.narrow(0, c, 1));
  }
}

Tensor SentRows::weights() const {
  const Tensor weights = at::empty({std::ssize(weights_)}, at::kDouble);
  std::copy(weights_.begin(), weights_.end(), weights.data_ptr<double>());
  return weights;
}

Rows SentRows::take(const Rows& like) {
  const std::vector<Tensor> rows = std::exchange(rows_, {});
  if (rows.empty())
    return {at::empty({0, like.layout->size()}, like.values.options()), like.layout};
  return {at::cat(rows), like.layout};
}

}  // namespace fedhpc
