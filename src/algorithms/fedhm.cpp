#include "fedhpc/algorithms/fedhm.hpp"

#include <cmath>

#include "fedhpc/algorithms/server_fit.hpp"

namespace fedhpc {

namespace {

constexpr const char* kTruncation = "truncation_error";

}  // namespace

void FedHM::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kTruncation, "1", "||W - U V^T|| / ||W|| over the factorised layers of the new model"}});
  map_ = &setup.factor_map();
  model_ = setup.initial_model();
  factors_ = map_->fit(model_, setup.initial_factors(), /*sweeps=*/1);
  codec_ = averaging_.links.upload_codec();
  server_.start(model_);
}

void FedHM::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(factors_);             // [C, Q]  U_t, V_t
    const Rows trained = block.train(start, {.map = map_});  // [C, Q]  U_k, V_k
    block.keep_buffers(trained);
    const Rows recovered = map_->expand(block.upload_models(trained, *codec_));  // [C, P] U_k V_k^T
    update.add(block.weights(averaging_.weighting), recovered - model_);
  });
  server_.step_(model_, update.reduce());  // W <- sum_k p_k U_k V_k^T
  factors_ = fit_on_server(round, *map_, model_, factors_, /*sweeps=*/1);  // U_{t+1}, V_{t+1}
  note_truncation(round);
}

void FedHM::note_truncation(Round& round) const {
  const double all = map_->squared_length(model_);
  const double lost = map_->squared_length(model_ - map_->expand(factors_));
  round.note(kTruncation, all > 0 ? std::sqrt(lost / all) : 0);
}

void FedHM::evaluate(Evaluation& evaluation) {
  evaluation.global(model_);
  evaluation.factors(factors_);
}

void FedHM::visit_state(StateVisitor& state) {
  state.rows("model", model_);
  state.rows("factors", factors_);
  server_.visit_state(state);
}

}  // namespace fedhpc
