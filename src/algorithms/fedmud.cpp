#include "fedhpc/algorithms/fedmud.hpp"

#include <algorithm>

namespace fedhpc {

Traits FedMUD::traits() const {
  return {.factorisations = {.names = {"low_rank", "low_rank_f", "low_rank_aad", "kronecker",
                                       "kronecker_f", "kronecker_aad"},
                             .exclude = {"first", "last"},
                             .view = ConvView::Raw},
          .factor_draw = draw(0),
          .averaged_uploads = 1};
}

void FedMUD::declare(OptionSet& options) {
  options.add("algorithm.reset_interval", reset_interval_, count_from(1),
              "rounds after which the update is added to the frozen model and starts anew (s)");
  options
      .add("algorithm.init_range", init_range_, above(0.0),
           "a of the uniform distribution U(-a, a) of factors that do not start at 0")
      .acts(
          either(where("algorithm.constants", {"uniform"}), where("algorithm.start", {"factors"})));
  options.add("algorithm.start", start_,
              Names<Start>{{"update", Start::Update}, {"factors", Start::Factors}},
              "what the first factors stand for: an update of 0 to the initial model, or the model "
              "itself, all trained ones drawn and no frozen model beneath");
  options
      .add("algorithm.constants", constants_,
           Names<Constants>{{"uniform", Constants::Uniform}, {"identity", Constants::Identity}},
           "frozen factors of low_rank_f and low_rank_aad: drawn, or identity matrices (to check "
           "that "
           "with full rank the method is federated averaging)")
      .acts(where("model.factorisation", {"low_rank_f", "low_rank_aad"}));
  averaging_.declare(options, LinkOptions::Payloads::ChangesUp);
  server_.declare(options);
}

FactorDraw FedMUD::draw(std::int64_t rounds) const {
  const bool of_model = rounds == 0 && start_ == Start::Factors;
  return {.range = init_range_, .zero = !of_model, .round = static_cast<std::uint64_t>(rounds)};
}

void FedMUD::set_constants() {
  const at::TensorOptions options = factors_.values.options();
  if (constants_ == Constants::Identity) {
    updates_->set_constants_to_identity(options);
  } else {
    updates_->draw_constants(seed_, draw(drawn_after_), options);
  }
}

void FedMUD::initialise(const Setup& setup) {
  seed_ = setup.seed();
  codec_ = averaging_.links.upload_codec();
  updates_ = &setup.factor_map();
  factors_ = setup.initial_factors();
  server_.start(factors_);
  record_ = AggregationRecord(setup);
  catch_up_ = CatchUp(setup);
  set_constants();
  model_.emplace(*updates_, factors_.values.options());
  if (start_ == Start::Update)
    model_->frozen() = setup.initial_model() - updates_->expand(factors_);
}

void FedMUD::round(Round& round) {
  const std::int64_t t = round.number();
  if (resets_until(t) > resets_until(t - 1)) reset(t - 1);
  Mean update = round.mean(updates_->factors());
  Mean products = record_.products(round);
  const Rows before = updates_->expand(factors_);
  round.each_block([&](Block& block) {
    catch_up(block, t);
    const Rows start = block.download(factors_, dense_codec(), kSeedBytes);  // [C, Q]  U, V
    const Rows trained = block.train(start, {.map = &*model_});              // U_i, V_i of (3)
    block.keep_buffers(trained);
    const Rows sent = block.upload(trained - start, *codec_);
    const std::span<const double> weights = block.weights(averaging_.weighting);
    update.add(weights, sent);
    record_.add(products, weights, factors_ + sent, before);
  });
  const Rows mean = update.reduce();
  const Rows averaged = factors_ + mean;
  server_.step_(factors_, mean);  // (4)
  record_.note(round, products, {.before = before, .mean = averaged, .after = factors_});
}

void FedMUD::reset(std::int64_t rounds) {
  model_->merge_(factors_);  // W <- W + U V^T (5)
  drawn_after_ = rounds;
  factors_ = updates_->initial(model_->frozen(), seed_, draw(rounds));  // U <- U(-a, a), V <- 0
  server_.forget_(updates_->factor_fields());  // means of updates of other factors say nothing
  set_constants();
}

std::int64_t FedMUD::resets_until(std::int64_t round) const {
  return std::max<std::int64_t>(round - 1, 0) / reset_interval_;
}

void FedMUD::catch_up(Block& block, std::int64_t round) {
  const std::int64_t value = factors_.values.element_size();
  const std::int64_t update = value * updates_->factor_count() + kSeedBytes;
  const auto missed = [&](std::int64_t last) {
    return resets_until(round - 1) - resets_until(last);
  };
  catch_up_.note(block, round, missed, update, value * updates_->weight_count());
}

std::vector<NamedTensor> FedMUD::drawn_in(std::int64_t round) const {
  if (round == 0) return {};
  if (round > 1 && resets_until(round) == resets_until(round - 1)) return {};
  return updates_->drawn(updates_->initial(model_->frozen(), seed_, draw(drawn_after_)));
}

void FedMUD::evaluate(Evaluation& evaluation) {
  evaluation.global(model_->expand(factors_));
  evaluation.factors(factors_);
}

void FedMUD::visit_state(StateVisitor& state) {
  state.rows("frozen", model_->frozen());
  state.rows("factors", factors_);
  state.integer("drawn_after", drawn_after_);
  server_.visit_state(state);
  if (state.restores()) set_constants();
}

}  // namespace fedhpc
