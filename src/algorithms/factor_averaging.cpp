#include "fedhpc/algorithms/factor_averaging.hpp"

#include <cmath>

#include <ATen/ops/scalar_tensor.h>

#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

namespace {

constexpr const char* kGap = "aggregation_gap";

std::string rank_of(const std::string& layer) { return concat("effective_rank.", layer); }

}  // namespace

std::vector<RoundMetric> AggregationRecord::metrics() const {
  std::vector<RoundMetric> metrics{
      {kGap, "1", "norm of the mean of what factors stand for minus what their mean stands for"}};
  for (std::int64_t l = 0; l < map_->layers(); ++l) {
    metrics.push_back({rank_of(map_->layer_name(l)), "1",
                       "effective rank of how the layer's weights have changed in the round"});
  }
  return metrics;
}

void AggregationRecord::add(Mean& products, std::span<const double> weights, const Rows& factors,
                            const Rows& before) const {
  const Rows change = map_->expand(factors);
  change.values.sub_(before.values);
  products.add(weights, change);
}

void AggregationRecord::note(Round& round, Mean& products, const Rows& before,
                             const Rows& after) const {
  const Rows change = map_->expand(after) - map_->expand(before);
  const Rows gap = products.reduce() - change;
  double square = 0;
  for (const auto& [begin, end] : map_->factorised_columns()) {
    const Tensor columns = gap.values[0].narrow(0, begin, end - begin).to(at::kDouble);
    square += columns.dot(columns).item<double>();
  }
  round.note(kGap, std::sqrt(square));
  const std::vector<Tensor> ranks = round.on_server(map_->layers(), [&](std::int64_t l) {
    return at::scalar_tensor(effective_rank(map_->matrix_of_layer(l, change)), at::kDouble);
  });
  for (std::int64_t l = 0; l < map_->layers(); ++l) {
    round.note(rank_of(map_->layer_name(l)), ranks[static_cast<std::size_t>(l)].item<double>());
  }
}

void FactorAveraging::declare(OptionSet& options) {
  options.add_or_auto("algorithm.init_range", init_range_, above(0.0),
                      "a of the uniform distribution U(-a, a) of the first factors; auto: normals "
                      "that give weights the variance 2 / fan_in");
  averaging_.declare(options);
}

void FactorAveraging::initialise(const Setup& setup) {
  map_ = &setup.factor_map();
  factors_ = setup.initial_factors();
  codec_ = averaging_.make_upload_codec();
  record_ = AggregationRecord(*map_);
}

void FactorAveraging::round(Round& round) {
  Mean update = round.mean(map_->factors());
  Mean products = record_.products(round);
  const Rows model = map_->expand(factors_);
  round.each_block([&](Block& block) {
    const Rows start = block.download(factors_);             // [C, Q]  u
    const Rows trained = block.train(start, {.map = map_});  // [C, Q]  u_k
    const Rows sent = block.upload(trained - start, *codec_);
    const std::span<const double> weights = block.weights(averaging_.weighting);
    update.add(weights, sent);
    record_.add(products, weights, factors_ + sent, model);
  });
  const Rows before = factors_.clone();
  factors_ += update.reduce();  // u <- u + sum_k p_k (u_k - u)
  record_.note(round, products, before, factors_);
}

void FactorAveraging::evaluate(Evaluation& evaluation) {
  evaluation.global(map_->expand(factors_));
  evaluation.factors(factors_);
}

void FactorAveraging::visit_state(StateVisitor& state) { state.rows("factors", factors_); }

}  // namespace fedhpc
