#include "fedhpc/algorithms/aggregation_record.hpp"

#include <cmath>
#include <string>

#include <ATen/ops/scalar_tensor.h>

#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

namespace {

constexpr const char* kGap = "aggregation_gap";

std::string rank_of(const std::string& layer) { return concat("effective_rank.", layer); }

}  // namespace

AggregationRecord::AggregationRecord(const Setup& setup) : map_(&setup.factor_map()) {
  setup.add_metrics(
      {{kGap, "1", "norm of the mean of what factors stand for minus what their mean stands for"}});
  for (std::int64_t l = 0; l < map_->layers(); ++l) {
    setup.add_metrics({{rank_of(map_->layer_name(l)), "1",
                        "effective rank of how the layer's weights have changed in the round"}});
  }
}

void AggregationRecord::add(Mean& products, std::span<const double> weights, const Rows& factors,
                            const Rows& before) const {
  const Rows change = map_->expand(factors);
  change.values.sub_(before.values);
  products.add(weights, change);
}

void AggregationRecord::note(Round& round, Mean& products, const Step& step) const {
  const Rows gap = products.reduce() - (map_->expand(step.mean) - step.before);
  round.note(kGap, std::sqrt(map_->squared_length(gap)));
  const Rows change = map_->expand(step.after) - step.before;
  const std::vector<Tensor> ranks = round.on_server(map_->layers(), [&](std::int64_t l) {
    return at::scalar_tensor(effective_rank(map_->matrix_of_layer(l, change)), at::kDouble);
  });
  for (std::int64_t l = 0; l < map_->layers(); ++l) {
    round.note(rank_of(map_->layer_name(l)), ranks[static_cast<std::size_t>(l)].item<double>());
  }
}

}  // namespace fedhpc
