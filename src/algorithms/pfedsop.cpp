#include "fedhpc/algorithms/pfedsop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/local_gradient.hpp"
#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

constexpr const char* kAngle = "angle";
constexpr const char* kBeta = "beta";
constexpr const char* kStepNorm = "step_norm";

}  // namespace

Personalisation::Step Personalisation::step_along(const InnerProducts& of, double square) const {
  // 1, 2: the angle by the cosine, which rounding may take beyond 1
  const double norms = std::sqrt(of.aa) * std::sqrt(square);
  const double similarity = norms > 0 ? std::clamp(of.ab / norms, -1.0, 1.0) : 0;
  const double angle = std::acos(similarity);
  // 3: (14)
  const double beta = beta_override.value_or(1 - std::exp(-std::exp(-lambda * (angle - 1))));
  // 4: the length of Delta^p = (1 - beta) Delta_i + beta Delta (15)
  const double length2 = std::max(
      0.0, (1 - beta) * (1 - beta) * of.aa + 2 * (1 - beta) * beta * of.ab + beta * beta * square);
  // 5: [Delta^p Delta^p^T + rho I]^-1 Delta^p = Delta^p / (rho + ||Delta^p||^2) (18)
  const double scale = personal_lr / (rho + length2);
  return {.angle = angle, .beta = beta, .scale = scale, .length = scale * std::sqrt(length2)};
}

Personalisation::Step Personalisation::step(const RowPart& part, const Rows& model,
                                            const Rows& last, const Rows& own, const Rows& global,
                                            double square) const {
  const Step step = step_along(inner_products(own, global), square);
  // 6: x_it <- x_i(t-1) - eta_1 (...) (19)
  part.add_two(model, last, -step.scale * (1 - step.beta), own, -step.scale * step.beta, global);
  return step;
}

void PFedSOP::declare(OptionSet& options) {
  const Names<Moment> moments{{"before", Moment::Before}, {"after", Moment::After}};
  options
      .add("algorithm.personal_lr", personalisation_.personal_lr, at_least(0.0),
           "rate eta_1 of the second-order step (train.lr is eta_2, that of local training)")
      .acts(where("algorithm.personalise", {"true"}));
  options
      .add("algorithm.rho", personalisation_.rho, above(0.0),
           "regularisation of the Fisher matrix, Delta Delta^T + rho I")
      .acts(where("algorithm.personalise", {"true"}));
  options
      .add("algorithm.lambda", personalisation_.lambda, at_least(0.0),
           "steepness of the Gompertz function that turns the angle between a client's update "
           "and the global one into a weight")
      .acts(where("algorithm.personalise", {"true"}))
      .acts(where("algorithm.beta_override", {"auto"}));
  options.add("algorithm.persist", persist_, moments,
              "which model a client goes on from next time: as it was before local training (the "
              "paper's letter), or after");
  options.add("algorithm.evaluate", evaluated_, moments,
              "which model is a client's own: before local training, or after");
  options.add("algorithm.personalise", personalise_,
              "whether clients take the second-order step; false: every client trains alone");
  options
      .add_or_auto("algorithm.beta_override", personalisation_.beta_override, between(0.0, 1.0),
                   "weight of the global update in place of the one that follows from the angle "
                   "(0: own update alone, 1: global one alone)")
      .acts(where("algorithm.personalise", {"true"}));
  averaging_.declare(options);
  require_plain_gradients(options, "pfedsop");
}

void PFedSOP::initialise(const Setup& setup) {
  setup.add_metrics(quantiles_of(kAngle, "rad", "theta between own and global update"));
  setup.add_metrics(quantiles_of(kBeta, "1", "weight of the global update"));
  setup.add_metrics(quantiles_of(kStepNorm, "1", "length of the second-order step"));
  lr_ = setup.training().lr;
  codec_ = averaging_.make_upload_codec();
  initial_ = setup.initial_model();
  trainable_ = RowPart(initial_.layout, {.with = Tag::Trainable});
  const Rows part = trainable_.of(initial_);
  update_ = {at::zeros_like(part.values), part.layout};
  models_ = &setup.store().rows("model", initial_);
  scored_ = evaluated_ == persist_ ? models_ : &setup.store().rows("scored", initial_);
  updates_ = &setup.store().rows("update", update_);
}

void PFedSOP::round(Round& round) {  // Algorithm 3
  Mean update = round.mean(trainable_.layout());
  const double square = inner_products(update_, update_).aa;  // ||Delta_{t-1}||^2
  round.each_block([&](Block& block) {
    const Rows received = round.number() > 1 ? block.download(update_) : Rows{};  // Delta_{t-1}
    const Rows start = personalised(block, received, square);                     // x_it
    const Rows trained = block.train(start);                                      // x_it^T
    // Delta_it <- (x_it^0 - x_it^T) / eta_2 (11)
    const Rows own =
        (1 / (lr_ * round.lr_factor())) * (trainable_.of(start) - trainable_.of(trained));
    block.keep(*updates_, own);
    block.keep(*models_, persist_ == Moment::After ? trained : start);
    if (scored_ != models_) block.keep(*scored_, evaluated_ == Moment::After ? trained : start);
    update.add(block.weights(averaging_.weighting), block.upload(own, *codec_));
  });
  update_ = update.reduce();  // Delta_t <- 1/K' sum_i Delta_it (13)
}

Rows PFedSOP::personalised(Block& block, const Rows& received, double square) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::int64_t> new_clients = models_->unwritten(block.clients());
  const Rows news = block.only(new_clients).download(initial_);  // x, of new clients
  std::int64_t next_new = 0;
  const std::size_t count = block.clients().size();
  std::vector<double> angles(count, kNone);
  std::vector<double> betas(count, kNone);
  std::vector<double> lengths(count, kNone);
  const Rows start{at::empty({block.count(), initial_.layout->size()}, initial_.values.options()),
                   initial_.layout};
  const auto note = [&](std::size_t c, const Personalisation::Step& step) {
    angles[c] = step.angle;
    betas[c] = step.beta;
    lengths[c] = step.length;
  };
  std::vector<std::int64_t> later;  // all together on a device
  for (std::size_t c = 0; c < count; ++c) {
    const auto row = static_cast<std::int64_t>(c);
    const std::int64_t client = block.clients()[c];
    const Rows model = start.narrow(row);
    if (!models_->written(client)) {  // x_it <- x
      model.values.copy_(news.values.narrow(0, next_new++, 1));
      continue;
    }
    const bool steps = personalise_ && updates_->written(client);
    if (steps && on_device(start.values)) {
      later.push_back(row);
      continue;
    }
    const Rows last = models_->view(client);  // x_i(t-1)
    if (!steps) {
      model.values.copy_(last.values);
      continue;
    }
    const Rows global = received.narrow(row);
    note(c, personalisation_.step(trainable_, model, last, updates_->view(client), global,
                                  square));  // Algorithm 1
  }
  if (!later.empty()) {
    const auto steps = personalise_on_device_(block, later, received, square, start);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      note(static_cast<std::size_t>(later[i]), steps[i]);
    }
  }
  models_->write(new_clients, news);  // x is sent once, also to a client that cannot train
  block.note(kAngle, angles);
  block.note(kBeta, betas);
  block.note(kStepNorm, lengths);
  return start;
}

void PFedSOP::evaluate(Evaluation& evaluation) {
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(scored_->read(block.clients())); });
}

void PFedSOP::visit_state(StateVisitor& state) { state.rows("update", update_); }

}  // namespace fedhpc
