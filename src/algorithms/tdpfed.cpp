#include "fedhpc/algorithms/tdpfed.hpp"

#include <cmath>

#include <ATen/ops/empty_like.h>

#include "fedhpc/algorithms/server_fit.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kCompositionError = "composition_error";
constexpr std::int64_t kTensor = 1;  // the channel of the composed tensor

std::string norm_of(const Field& field) { return "factor_norm." + field.name; }

}  // namespace

struct TDPFed::Clients {
  Rows factors;   // [C, Q]  A_k
  Rows composed;  // [C, P]  [[A_k]]
  Rows personal;  // [C, P]  theta_k
  Rows gradient;  // [C, Q]
};

void TDPFed::declare(OptionSet& options) {
  // Personal models move by Nesterov's rule (algorithm.momentum), factors by Adam's.
  for (const char* key : {"train.optimizer", "train.momentum", "train.nesterov",
                          "train.weight_decay", "train.clip_norm"}) {
    options.acts(key, unless("algorithm.name", "tdpfed"));
  }
  for (const char* key : {"train.lr", "train.lr_schedule", "train.lr_warmup"}) {
    options.acts(key, where("algorithm.factor_solver", {"adam"}));
  }
  options.add("algorithm.lambda", lambda_, at_least(0.0),
              "weight of the term lambda/2 ||theta - [[A]]||^2 between personal and tensorized "
              "model");
  options.add("algorithm.personal_lr", personal_lr_, at_least(0.0),
              "learning rate of the personal model theta (train.lr is that of the factors)");
  options.add("algorithm.momentum", momentum_, {.low = 0, .high = 1, .high_open = true},
              "Nesterov momentum of theta; a larger one needs a smaller personal_lr; 0: plain "
              "gradient steps");
  options.add("algorithm.inner_steps", inner_steps_, count_from(1),
              "Nesterov steps on theta with each batch (s)");
  options
      .add("algorithm.factor_steps", factor_steps_, count_from(1),
           "Adam steps on the factors after each batch (s')")
      .acts(where("algorithm.factor_solver", {"adam"}));
  options.add("algorithm.beta", beta_, at_least(0.0),
              "step from the old global model to the mean of the clients'; 1: the mean");
  options.add(
      "algorithm.aggregate", aggregate_,
      Names<Aggregate>{{"afm", Aggregate::FactorMatrices}, {"act", Aggregate::ComposedTensor}},
      "what the server averages: factor matrices, or the tensors composed of them");
  options.add("algorithm.broadcast", broadcast_,
              Names<Broadcast>{{"factors", Broadcast::Factors}, {"tensor", Broadcast::Tensor}},
              "what clients receive: factors, or also the tensor, which theta then starts from");
  options.add("algorithm.factor_solver", solver_,
              Names<FactorSolver>{{"adam", FactorSolver::Adam}, {"fit", FactorSolver::Fit}},
              "how factors follow theta: by Adam steps, or by a decomposition of theta");
  options
      .add("algorithm.fit_sweeps", fit_sweeps_, count_from(1),
           "sweeps of alternating least squares in a decomposition of kernels; matrices need "
           "none")
      .acts(
          either(where("algorithm.factor_solver", {"fit"}), where("algorithm.aggregate", {"act"})))
      .acts(of_model_with_images());
  averaging_.declare(options, LinkOptions::Payloads::Models);
}

void TDPFed::initialise(const Setup& setup) {
  map_ = &setup.factor_map();
  setup.add_metrics(
      {{kCompositionError, "1",
        "mean over participants of ||theta_k - [[A_k]]|| / ||theta_k|| at the end of the round"}});
  for (const Field& field : map_->factor_fields()) {
    setup.add_metrics({{norm_of(field), "1", "Frobenius norm of the server's factor matrix"}});
  }
  factors_ = setup.initial_factors();
  tensor_ = map_->expand(factors_);
  codec_ = averaging_.links.open(setup, factors_);
  if (broadcast_ == Broadcast::Tensor) {
    averaging_.links.open(setup, tensor_, kTensor, LinkOptions::Ways::Down);
  }
  personal_ = &setup.store().rows("personal", tensor_);
  const OptimizerKind kind = momentum_ > 0 ? OptimizerKind::Nesterov : OptimizerKind::Sgd;
  nesterov_ = std::make_unique<RowOptimizer>(
      StepRule{.kind = kind, .lr = personal_lr_, .momentum = momentum_}, map_->full());
  adam_ = std::make_unique<RowOptimizer>(
      StepRule{.kind = OptimizerKind::Adam, .lr = setup.training().lr, .scheduled = true},
      map_->factors());
}

void TDPFed::round(Round& round) {
  const bool afm = aggregate_ == Aggregate::FactorMatrices;
  const Rows composed = this->composed();  // [1, P]  [[A_t]]
  Mean update = round.mean(afm ? map_->factors() : map_->full());
  round.each_block([&](Block& block) {
    const Rows uploaded = block.upload_models(client_update(block), *codec_);  // [C, Q] A_{k,t,tau}
    update.add(block.weights(averaging_.weighting),
               afm ? uploaded - factors_ : map_->expand(uploaded) - composed);  // (19)
  });
  const Rows mean = update.reduce();
  scale_columns_(mean, beta_, Tag::Trainable);  // a variance moved beyond the mean may be negative
  if (afm) {
    factors_ += mean;  // (18): (1 - beta) A_t + beta sum_k p_k A_k
    tensor_ = map_->expand(factors_);
  } else {
    tensor_ = composed + mean;  // omega_{t+1}
    // (20): omega_{t+1} ~ [[A_{t+1}]]
    factors_ = fit_on_server(round, *map_, tensor_, factors_, fit_sweeps_);
  }
  note_factor_norms(round);
}

Rows TDPFed::composed() const {
  return aggregate_ == Aggregate::FactorMatrices ? tensor_ : map_->expand(factors_);
}

Rows TDPFed::client_update(Block& block) {
  Clients all;
  all.factors = block.download(factors_);    // A_k <- A_t
  all.composed = map_->expand(all.factors);  // [[A_k]]
  all.personal = broadcast_ == Broadcast::Tensor ? block.download(tensor_, kTensor)
                                                 : all.composed.clone();  // theta_k <- [[A_t]]
  all.gradient = {at::empty_like(all.factors.values), map_->factors()};
  adam_->reset(all.factors.values);
  const Steps steps = solver_ == FactorSolver::Fit ? Steps::Any : Steps::Alike;
  block.each_step(steps, [&](LocalStep& step) {  // t' = 1..tau, a batch B_k each
    train_personal_(step, all);
    train_factors_(step, all);
  });
  map_->copy_passed_(all.personal, all.factors, Tag::Buffer);
  block.keep(*personal_, all.personal);
  block.keep_buffers(all.personal);
  note_errors(block, all);
  return all.factors;
}

void TDPFed::train_personal_(LocalStep& step, Clients& all) {
  // (13): theta ~ argmin f(theta; B_k) + lambda/2 ||theta - [[A_k]]||^2
  step.minimise_(all.personal, *nesterov_, {.mu = lambda_, .centre = all.composed},
                 {.steps = inner_steps_});
}

void TDPFed::train_factors_(LocalStep& step, Clients& all) {
  const Rows theta = step.active(all.personal);
  const Rows factors = step.active(all.factors);
  const Rows composed = step.active(all.composed);
  if (solver_ == FactorSolver::Fit) {
    factors.values.copy_(map_->fit(theta, factors, fit_sweeps_).values);
    map_->expand_(factors, composed);
    return;
  }
  const Rows gradient = step.active(all.gradient);
  for (std::int64_t i = 0; i < factor_steps_; ++i) {
    map_->distance_gradient_(factors, theta, lambda_, gradient);  // (23)
    step.step_(all.factors.values, all.gradient.values, *adam_);  // (17), by Adam
  }
  map_->expand_(factors, composed);
}

void TDPFed::note_errors(Block& block, const Clients& all) const {
  std::vector<double> errors = squared_lengths(all.personal - all.composed).values();
  const std::vector<double> lengths = squared_lengths(all.personal).values();
  for (std::size_t c = 0; c < errors.size(); ++c) {
    errors[c] = lengths[c] > 0 ? std::sqrt(errors[c] / lengths[c]) : 0;
  }
  block.note(kCompositionError, errors);
}

void TDPFed::note_factor_norms(Round& round) const {
  for (const Field& field : map_->factor_fields()) {
    const Tensor factor = factors_.values[0].narrow(0, field.offset, field.size);
    round.note(norm_of(field), factor.to(at::kDouble).norm().item<double>());
  }
}

void TDPFed::evaluate(Evaluation& evaluation) {
  evaluation.global(tensor_);
  evaluation.factors(factors_);
  // A client that has never trained would start from what it receives.
  const Rows start = broadcast_ == Broadcast::Tensor ? tensor_ : composed();
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(personal_->read(block.clients(), start)); });
}

void TDPFed::visit_state(StateVisitor& state) {
  state.rows("factors", factors_);
  state.rows("tensor", tensor_);
}

}  // namespace fedhpc
