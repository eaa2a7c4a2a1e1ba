#include "fedhpc/algorithms/pfedsop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/local_gradient.hpp"

namespace fedhpc {

namespace {

constexpr const char* kAngle = "angle";
constexpr const char* kBeta = "beta";
constexpr const char* kStepNorm = "step_norm";

}  // namespace

Personalisation::Step Personalisation::step_along(double own_square, double product,
                                                  double square) const {
  // 1, 2: the angle by the cosine, which rounding may take beyond 1
  const double norms = std::sqrt(own_square) * std::sqrt(square);
  const double similarity = norms > 0 ? std::clamp(product / norms, -1.0, 1.0) : 0;
  const double angle = std::acos(similarity);
  // 3: (14)
  const double beta = beta_override.value_or(1 - std::exp(-std::exp(-lambda * (angle - 1))));
  // 4: the length of Delta^p = (1 - beta) Delta_i + beta Delta (15)
  const double length2 = std::max(0.0, (1 - beta) * (1 - beta) * own_square +
                                           2 * (1 - beta) * beta * product + beta * beta * square);
  // 5: [Delta^p Delta^p^T + rho I]^-1 Delta^p = Delta^p / (rho + ||Delta^p||^2) (18)
  const double scale = personal_lr / (rho + length2);
  return {.angle = angle, .beta = beta, .scale = scale, .length = scale * std::sqrt(length2)};
}

std::vector<Personalisation::Step> Personalisation::step(const RowPart& part, const Rows& models,
                                                         const Rows& last, const Rows& own,
                                                         const Rows& global, double square) const {
  const RowProducts of = inner_products(own, global);
  std::vector<Step> steps;
  std::vector<double> of_own;
  std::vector<double> of_global;
  for (std::size_t c = 0; c < of.aa.values().size(); ++c) {
    const Step& step = steps.emplace_back(step_along(of.aa.values()[c], of.ab.values()[c], square));
    of_own.push_back(-step.scale * (1 - step.beta));
    of_global.push_back(-step.scale * step.beta);
  }
  // 6: x_it <- x_i(t-1) - eta_1 (...) (19)
  part.add_two(models, last, RowNumbers(std::move(of_own)), own, RowNumbers(std::move(of_global)),
               global);
  return steps;
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
              "whether clients take the second-order step; false: every client trains alone, and "
              "what it sends is booked all the same");
  options
      .add_or_auto("algorithm.beta_override", personalisation_.beta_override, between(0.0, 1.0),
                   "weight of the global update in place of the one that follows from the angle "
                   "(0: own update alone, 1: global one alone)")
      .acts(where("algorithm.personalise", {"true"}));
  averaging_.declare(options, LinkOptions::Payloads::ChangesUp);
  options.acts("algorithm.weighting", where("algorithm.personalise", {"true"}));
  require_plain_gradients(options, "pfedsop");
}

void PFedSOP::initialise(const Setup& setup) {
  setup.add_metrics(quantiles_of(kAngle, "rad", "theta between own and global update"));
  setup.add_metrics(quantiles_of(kBeta, "1", "weight of the global update"));
  setup.add_metrics(quantiles_of(kStepNorm, "1", "length of the second-order step"));
  lr_ = setup.training().lr;
  codec_ = averaging_.links.upload_codec();
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
  const double square = inner_products(update_, update_).aa.values().front();  // ||Delta_{t-1}||^2
  round.each_block([&](Block& block) {
    const Rows received = round.number() > 1 ? block.download(update_) : Rows{};  // Delta_{t-1}
    const Rows start = personalised(block, received, square);                     // x_it
    const Rows trained = block.train(start);                                      // x_it^T
    // Delta_it <- (x_it^0 - x_it^T) / eta_2 (11)
    const Rows own =
        (1 / (lr_ * round.lr_factor())) * (trainable_.of(start) - trainable_.of(trained));
    copy_columns_(start, trained, Tag::Buffer);  // statistics are those after training
    block.keep(*updates_, own);
    block.keep(*models_, persist_ == Moment::After ? trained : start);
    if (scored_ != models_) block.keep(*scored_, evaluated_ == Moment::After ? trained : start);
    update.add(block.weights(averaging_.weighting), block.upload(own, *codec_));
  });
  update_ = update.reduce(update_);  // Delta_t <- 1/K' sum_i Delta_it (13)
}

Rows PFedSOP::personalised(Block& block, const Rows& received, double square) {
  const std::vector<std::int64_t> new_clients = models_->unwritten(block.clients());
  // x is sent once, also to a client that cannot train
  models_->write(new_clients, block.only(new_clients).download(initial_));
  std::vector<std::int64_t> resting;  // x_it <- x_i(t-1), of new clients x
  std::vector<std::int64_t> moving;   // x_it <- Algorithm 1
  for (std::int64_t c = 0; c < block.count(); ++c) {
    const std::int64_t client = block.clients()[static_cast<std::size_t>(c)];
    (personalise_ && updates_->written(client) ? moving : resting).push_back(c);
  }
  const Rows start{at::empty({block.count(), initial_.layout->size()}, initial_.values.options()),
                   initial_.layout};
  models_->each_portion(resting, [&](std::span<const std::int64_t> places) {
    start.put_(places, models_->view(block.clients_at(places)));
  });
  const std::vector<double> none(block.clients().size(), std::numeric_limits<double>::quiet_NaN());
  std::vector<double> angles = none;
  std::vector<double> betas = none;
  std::vector<double> lengths = none;
  models_->each_portion(moving, [&](std::span<const std::int64_t> places) {
    const std::vector<std::int64_t> clients = block.clients_at(places);
    const Rows models = start.at(places);
    const std::vector<Personalisation::Step> steps =
        personalisation_.step(trainable_, models, models_->view(clients), updates_->view(clients),
                              received.at(places), square);
    start.put_(places, models);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto c = static_cast<std::size_t>(places[i]);
      angles[c] = steps[i].angle;
      betas[c] = steps[i].beta;
      lengths[c] = steps[i].length;
    }
  });
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
