#include "fedhpc/algorithms/scaffold.hpp"

#include <vector>

#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/local_gradient.hpp"
#include "fedhpc/models/row_numbers.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kControls = 1;  // the channel of control variates

}  // namespace

void Scaffold::declare(OptionSet& options) {
  options.add(
      "algorithm.control", kind_,
      Names<Control>{
          {"gradient", Control::Gradient}, {"steps", Control::Steps}, {"none", Control::None}},
      "a client's new control variate: the gradient at the received model on all samples "
      "(option I), the mean of its local steps (option II), or none, which is fedavg with the "
      "same weighting");
  averaging_.declare(options);
  server_.declare(options);
  require_plain_gradients(
      options, "scaffold",
      "where (x - y_i) / (K train.lr) is the mean gradient of the local steps: that is right",
      [this] { return kind_ == Control::Steps; });
}

void Scaffold::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  training_options_ = setup.training();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  if (kind_ == Control::None) return;
  training_ = ShiftedTraining(setup.training().step_rule(), global_, /*mu=*/0);
  const Rows part = training_.part().of(global_);
  control_ = {at::zeros_like(part.values), part.layout};
  controls_ = &setup.store().rows("control", control_);
  control_codec_ = averaging_.links.open(setup, control_, kControls);
}

void Scaffold::round(Round& round) {
  if (kind_ == Control::None) {
    averaged_round(round);
    return;
  }
  const double eta = training_options_.lr * round.lr_factor();
  Mean update = round.mean();
  Mean drift = round.mean(training_.part().layout());
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);                              // [C, P]  x
    const Rows common = block.download(control_, kControls);                 // [C, Q]  c
    const Rows own = controls_->read(block.clients());                       // [C, Q]  c_i
    const Rows trained = training_.train(block, start, common - own);        // [C, P]  y_i
    const Rows change = change_of(block, start, trained, own, common, eta);  // c_i+ - c_i
    block.keep_buffers(trained);
    block.keep(*controls_, own + change);
    const std::span<const double> weights = block.weights(averaging_.weighting);
    update.add(weights, block.upload(trained - start, *codec_));
    drift.add(weights, block.upload(change, *control_codec_));
  });
  server_.step_(global_, update.reduce());                // x <- x + eta_g mean(y_i - x)
  control_ += round.share_of_clients() * drift.reduce();  // c <- c + |S|/N mean(c_i+ - c_i)
}

void Scaffold::averaged_round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);
    const Rows trained = block.train(start);
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  server_.step_(global_, update.reduce());
}

Rows Scaffold::change_of(Block& block, const Rows& start, const Rows& trained, const Rows& own,
                         const Rows& common, double eta) const {
  const Rows change{at::zeros_like(own.values), own.layout};
  std::vector<double> steps;   // 1 / (K eta_l)
  std::vector<double> trains;  // 1, or 0 for a client that takes no step
  for (const std::int64_t count : block.local_steps()) {
    steps.push_back(count > 0 ? 1 / (static_cast<double>(count) * eta) : 0);
    trains.push_back(count > 0 ? 1 : 0);
  }
  const RowNumbers active(std::move(trains));
  if (kind_ == Control::Gradient) {  // g_i(x) - c_i
    add_difference_(change, active, gradient_on_all(block, start), own, Tag::Trainable);
    return change;
  }
  // (x - y_i) / (K eta_l) - c
  const RowPart& part = training_.part();
  add_difference_(change, RowNumbers(std::move(steps)), part.of(start), part.of(trained),
                  Tag::Trainable);
  add_columns_(change, -1 * active, common, Tag::Trainable);
  return change;
}

Rows Scaffold::gradient_on_all(Block& block, const Rows& at) const {
  const Rows sum{at::zeros_like(at.values), at.layout};  // [C, P]
  const std::span<const double> counts = block.weights(Weighting::Samples);
  const std::vector<double> samples(counts.begin(), counts.end());
  const Rows model = at.clone();  // whose statistics may move
  block.each_batch(1, /*pass=*/1, [&](LocalStep& step) {
    const Rows gradient{step.gradient(model), at.layout};
    step.each_rate([&](std::int64_t first, std::int64_t count, double) {
      std::vector<double> shares;  // of a batch in its client's samples
      for (std::int64_t c = first; c < first + count; ++c) {
        shares.push_back(static_cast<double>(step.samples(c)) /
                         samples[static_cast<std::size_t>(c)]);
      }
      add_columns_(sum.narrow(first, count), RowNumbers(std::move(shares)),
                   gradient.narrow(first, count), Tag::Trainable);
    });
  });
  return training_.part().of(sum);
}

void Scaffold::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

void Scaffold::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  if (kind_ != Control::None) state.rows("control", control_);
  server_.visit_state(state);
}

}  // namespace fedhpc
