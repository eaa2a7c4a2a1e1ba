#include "fedhpc/algorithms/factor_averaging.hpp"

namespace fedhpc {

Traits FactorAveraging::traits() const {
  return {.factorisations = {.names = factorisations_, .exclude = {"first", "last"}},
          .factor_draw = {.range = init_range_},
          .averaged_uploads = 1};
}

void FactorAveraging::declare(OptionSet& options) {
  options.add_or_auto("algorithm.init_range", init_range_, above(0.0),
                      "a of the uniform distribution U(-a, a) of the first factors; auto: normals "
                      "that give weights the variance 2 / fan_in");
  declare_averaging(options);
}

void FactorAveraging::declare_averaging(OptionSet& options) {
  averaging_.declare(options);
  server_.declare(options);
}

void FactorAveraging::initialise(const Setup& setup) {
  begin(setup, setup.initial_factors(), setup.factor_map());
}

void FactorAveraging::begin(const Setup& setup, Rows first, RowMap& model) {
  map_ = &setup.factor_map();
  factors_ = std::move(first);
  model_ = &model;
  codec_ = averaging_.links.open(setup, factors_);
  server_.start(factors_);
  record_ = AggregationRecord(setup);
}

void FactorAveraging::round(Round& round) {
  Mean update = round.mean(map_->factors());
  Mean products = record_.products(round);
  const Rows model = map_->expand(factors_);
  round.each_block([&](Block& block) {
    const Rows start = block.download(factors_);               // [C, Q]  u
    const Rows trained = block.train(start, {.map = model_});  // [C, Q]  u_k
    block.keep_buffers(trained);
    const Rows sent = block.upload(trained - start, *codec_);
    const std::span<const double> weights = block.weights(averaging_.weighting);
    update.add(weights, sent);
    record_.add(products, weights, factors_ + sent, model);
  });
  const Rows mean = update.reduce();
  const Rows averaged = factors_ + mean;
  server_.step_(factors_, mean);  // u <- u + sum_k p_k (u_k - u)
  record_.note(round, products, {.before = model, .mean = averaged, .after = factors_});
}

void FactorAveraging::evaluate(Evaluation& evaluation) {
  evaluation.global(model_->expand(factors_));
  evaluation.factors(factors_);
}

}  // namespace fedhpc
