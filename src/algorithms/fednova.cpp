#include "fedhpc/algorithms/fednova.hpp"

#include <cmath>
#include <string>

#include <ATen/ops/tensor.h>

#include "fedhpc/models/row_numbers.hpp"

#include "core/number_text.hpp"

namespace fedhpc {

namespace {

constexpr const char* kEffectiveSteps = "effective_steps";

/// The numbers where they are above 0 turned over, else 0.
RowNumbers inverse(const std::vector<double>& numbers) {
  std::vector<double> turned;
  for (const double number : numbers) turned.push_back(number > 0 ? 1 / number : 0);
  return RowNumbers(std::move(turned));
}

}  // namespace

void FedNova::declare(OptionSet& options) {
  options.add("algorithm.mu", mu_, at_least(0.0),
              "weight of the proximal term mu/2 ||w - w_t||^2; 0: none");
  averaging_.declare(options);
  server_.declare(options);
  options.add_check([this](const OptionSet& given) {
    const std::string name = "algorithm.name = fednova, which counts local steps ";
    given.refuse_unless_default("train.lr_unit", concat(name, "at one rate a round; use round"));
    if (given.entry("train.optimizer").print() == "adam") {
      given.refuse("train.optimizer", concat(name, "of SGD, with or without momentum"));
    }
    if (mu_ * parse_number<double>(given.entry("train.lr").print(), {}) > 1) {
      given.refuse("algorithm.mu", concat("train.lr = ", given.entry("train.lr").print(),
                                          ", with which steps turn round; up to 1 / train.lr"));
    }
  });
}

void FedNova::initialise(const Setup& setup) {
  setup.add_metrics({{kEffectiveSteps, "1", "tau_eff, the weighted mean of clients' ||a||_1"}});
  global_ = setup.initial_model();
  training_options_ = setup.training();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  auto layout = std::make_shared<Layout>();
  layout->add(kEffectiveSteps, {1}, 1, Tag::Trainable);
  one_number_ = std::move(layout);
}

void FedNova::round(Round& round) {
  const double eta = training_options_.lr * round.lr_factor();
  Mean normalised = round.mean();
  Mean steps = round.mean(one_number_);
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]  x
    const Rows trained = block.train(start, {.penalty = {.mu = mu_, .centre = start}});  // y_i
    block.keep_buffers(trained);
    const std::vector<double> lengths = lengths_of(block, eta);  // ||a_i||_1
    const Rows change = trained - start;
    const Rows direction = change.clone();  // - eta d_i
    scale_(direction, inverse(lengths));
    copy_columns_(direction, change, Tag::Buffer);
    const std::span<const double> weights = block.weights(averaging_.weighting);
    normalised.add(weights, block.upload(direction, *codec_));
    const Rows sent{beside(start, at::tensor(lengths, at::kDouble).unsqueeze(1)), one_number_};
    steps.add(weights, block.upload(sent));
  });
  const Rows update = normalised.reduce();                                 // - eta sum_i p_i d_i
  const double effective = float64_values(steps.reduce()).item<double>();  // tau_eff
  round.note(kEffectiveSteps, effective);
  scale_columns_(update, effective, Tag::Trainable);
  server_.step_(global_, update);  // x <- x - tau_eff eta sum_i p_i d_i
}

double FedNova::length_of(const StepRule& rule, double eta, double mu, std::int64_t steps) {
  double length = 0;
  double moved = 0;     // a_ik: what a gradient of 1 moves in the steps from its own on
  double velocity = 0;  // of momentum and nesterov
  const double rho = rule.kind == OptimizerKind::Sgd ? 0 : rule.momentum;
  for (std::int64_t since = 0; since < steps; ++since) {
    const double gradient = (since == 0 ? 1 : 0) - eta * mu * moved;
    velocity = rho * velocity + gradient;
    moved += rule.kind == OptimizerKind::Nesterov ? gradient + rho * velocity : velocity;
    length += std::abs(moved);  // momentum and the proximal term at once may turn round
  }
  return length;
}

std::vector<double> FedNova::lengths_of(Block& block, double eta) const {
  std::vector<double> lengths;
  for (const std::int64_t steps : block.local_steps()) {
    lengths.push_back(length_of(training_options_.step_rule(), eta, mu_, steps));
  }
  return lengths;
}

void FedNova::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

}  // namespace fedhpc
