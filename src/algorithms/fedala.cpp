#include "fedhpc/algorithms/fedala.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kReceptionAccuracy = "reception_accuracy";
constexpr const char* kGlobalWeight = "global_weight";
constexpr const char* kStartPasses = "start_passes";

constexpr std::int64_t kFirstPass = 1;  // local training has the batches of pass 0

}  // namespace

void FedALA::declare(OptionSet& options) {
  options
      .add("algorithm.layers", layers_, count_from(1),
           "layers from the classifier down in which a client mixes its own model with the "
           "global one (p); those below are the global one's")
      .acts(unless("algorithm.weight_lr", "0"));
  options
      .add("algorithm.share", share_, above_up_to(0.0, 1.0),
           "share of a client's training samples a pass of the weights sees (s)")
      .acts(unless("algorithm.weight_lr", "0"));
  options
      .add("algorithm.samples", sampled_,
           Names<Sampled>{{"drawn", Sampled::Drawn}, {"slice", Sampled::Slice}},
           "which samples that is: some drawn for every pass, or (authors' program) neighbours in "
           "stored order, from a place drawn for every round")
      .acts(unless("algorithm.weight_lr", "0"));
  options
      .add("algorithm.learn", learn_who_,
           Names<Learn>{{"participants", Learn::Participants}, {"all", Learn::All}},
           "who learns weights in a round: participants that have trained before, or (authors' "
           "program) from round 2 on all clients; what an absent one mixes is its local model then")
      .acts(unless("algorithm.weight_lr", "0"))
      .acts(either(unless("topology.participation", "1"), where("train.straggler_work", {"none"})));
  options.add("algorithm.weight_lr", weight_lr_, at_least(0.0),
              "step size eta of the weights; 0: they stay 1, and the rounds are FedAvg's");
  options
      .add("algorithm.start_passes", start_passes_, count_from(1),
           "most passes a client's weights make the first time it learns them")
      .acts(unless("algorithm.weight_lr", "0"));
  options
      .add("algorithm.start_rule", start_rule_,
           Names<StartRule>{{"change", StartRule::Change}, {"losses", StartRule::Losses}},
           "what tells that they have converged: the root mean square of a pass's changes of them "
           "is up to algorithm.tolerance, or (authors' program) the standard deviation of the last "
           "batch's loss over the last 10 of more than 10 passes is below it")
      .acts(unless("algorithm.weight_lr", "0"));
  options
      .add("algorithm.tolerance", tolerance_, at_least(0.0),
           "what algorithm.start_rule compares with: up to there weights have converged")
      .acts(unless("algorithm.weight_lr", "0"));
  averaging_.declare(options);
  server_.declare(options);
}

void FedALA::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kReceptionAccuracy, "fraction",
        "mean over participants, with algorithm.learn = all from round 2 on over all clients, of "
        "the accuracy of the mixed model on own test samples, before local training"},
       {kGlobalWeight, "1",
        "mean over clients that learn weights of their mean: 1 is the global model, 0 the "
        "client's own"},
       {kStartPasses, "1",
        "mean over clients that learn weights for the first time of the passes made"}});
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  const std::size_t first = first_of_top(*global_.layout, layers_);
  top_ = RowPart(global_.layout, first, {.with = Tag::Trainable});
  // The head alone, where no norm or parameter of a model file stands behind it.
  const bool head_alone =
      top_.layout()->size() == global_.layout->count(Tag::Trainable, {.with = Tag::Head});
  moved_ = {.with = head_alone ? Tag::Head : Tag::Trainable};
  const Rows part = top_.of(global_);
  local_ = &setup.store().rows("local", part);
  weights_ = &setup.store().rows("weight", {at::ones_like(part.values), part.layout});
}

void FedALA::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);  // [C, P]  Theta^{t-1}
    Rows start = aggregated(block, received);       // [C, P]  hat_i
    block.note_received(kReceptionAccuracy, block.evaluate(start));
    const Rows trained = block.train(start, {.pass = 0});  // [C, P]  Theta_i^t
    block.keep(*local_, top_.of(trained));
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - received, *codec_));
  });
  if (learn_who_ == Learn::All && round.number() > 1) {
    round.each_absent_block([&](Block& block) {
      const Rows start = aggregated(block, block.download(global_));
      block.note_received(kReceptionAccuracy, block.evaluate(start));
      block.keep(*local_, top_.of(start));  // Theta_i <- hat_i
    });
  }
  // Theta^t <- Theta^{t-1} + sum_i p_i (Theta_i^t - Theta^{t-1})
  server_.step_(global_, update.reduce());
}

Rows FedALA::aggregated(Block& block, const Rows& received) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> means(block.clients().size(), kNone);
  std::vector<double> passes(block.clients().size(), kNone);
  const Rows start = received.clone();  // of clients that come for the first time: Theta

  /// Learns the weights of the clients at these places and puts their models into `start`.
  const auto learn = [&](const std::vector<std::int64_t>& places, const auto& passes_of) {
    const std::vector<std::int64_t> clients = block.clients_at(places);
    const Mixture mixture = mixture_of(clients, start.at(places));
    Block some = block.only(clients);
    passes_of(some, mixture);
    mix_(mixture);
    start.put_(places, mixture.model);
    some.keep(*weights_, mixture.weights);
    const RowNumbers sums = inner_products(mixture.weights, weights_->initial()).ab;
    for (std::size_t i = 0; i < places.size(); ++i) {
      means[static_cast<std::size_t>(places[i])] =
          sums.values()[i] / static_cast<double>(weights_->layout()->size());
    }
  };

  std::vector<std::int64_t> others;
  for (std::int64_t c = 0; c < block.count(); ++c) {
    const std::int64_t client = block.clients()[static_cast<std::size_t>(c)];
    if (!learns(block, client)) continue;
    if (weights_->written(client)) {
      others.push_back(c);
      continue;
    }
    learn({c}, [&](Block& one, const Mixture& mixture) {
      passes[static_cast<std::size_t>(c)] =
          static_cast<double>(learn_to_convergence_(one, mixture));
    });
  }
  if (!others.empty()) {
    learn(others, [&](Block& some, const Mixture& mixture) { learn_(some, mixture, kFirstPass); });
  }
  block.note(kGlobalWeight, means);
  block.note(kStartPasses, passes);
  return start;
}

bool FedALA::learns(const Block& block, std::int64_t client) const {
  if (learn_who_ == Learn::Participants) return local_->written(client);
  return block.round() > 1 && block.trains(client);
}

FedALA::Mixture FedALA::mixture_of(std::span<const std::int64_t> clients, Rows model) const {
  const Tensor global = top_.of(model).values.clone();
  return {.model = std::move(model),
          .global = global,
          .apart = local_->read(clients).values - global,
          .weights = weights_->read(clients)};
}

void FedALA::mix_(const Mixture& mixture) const {
  // Theta_i + (Theta - Theta_i) W, in a form that is Theta to the last bit where W = 1
  top_.put_(mixture.model,
            {mixture.global + mixture.apart * (1 - mixture.weights.values), top_.layout()});
}

double FedALA::learn_(Block& block, const Mixture& mixture, std::int64_t pass) const {
  const bool watched = start_rule_ == StartRule::Losses && block.count() == 1;
  double loss = 0;
  double before = 0;  // sum over batches of loss times size
  double counted_before = 0;
  const auto take = [&](LocalStep& step) {
    mix_(mixture);
    const Rows gradient = top_.of({step.gradient(mixture.model, {}, 0, moved_), global_.layout});
    step.each_rate([&](std::int64_t first, std::int64_t count, double) {
      // W <- clip(W - eta grad (Theta - Theta_i), 0, 1)
      const Tensor weights = mixture.weights.values.narrow(0, first, count);
      weights.add_(gradient.values.narrow(0, first, count) * mixture.apart.narrow(0, first, count) *
                   weight_lr_);
      weights.clamp_(0, 1);
    });
    if (!watched) return;
    const double sum = step.loss_so_far(0);
    const double counted = step.counted_so_far(0);
    loss = counted > counted_before ? (sum - before) / (counted - counted_before) : 0;
    before = sum;
    counted_before = counted;
  };
  block.each_batch(share_, pass, take, sampled_);
  return loss;
}

bool FedALA::converged(const Rows& before, const Rows& weights,
                       std::span<const double> losses) const {
  if (start_rule_ == StartRule::Change) {
    const auto columns = static_cast<double>(top_.layout()->size());
    return std::sqrt(squared_lengths(weights - before).values().front() / columns) <= tolerance_;
  }
  constexpr std::size_t kLosses = 10;
  if (losses.size() <= kLosses) return false;
  const std::span<const double> last = losses.last(kLosses);
  const double mean = std::accumulate(last.begin(), last.end(), 0.0) / kLosses;
  double square = 0;
  for (const double loss : last) square += (loss - mean) * (loss - mean);
  return std::sqrt(square / kLosses) < tolerance_;
}

std::int64_t FedALA::learn_to_convergence_(Block& block, const Mixture& mixture) const {
  std::vector<double> losses;
  for (std::int64_t pass = 0; pass < start_passes_; ++pass) {
    const Rows before = mixture.weights.clone();
    losses.push_back(learn_(block, mixture, kFirstPass + pass));
    if (converged(before, mixture.weights, losses)) return pass + 1;
  }
  return start_passes_;
}

void FedALA::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block([&](EvaluationBlock& block) {
    const auto count = static_cast<std::int64_t>(block.clients().size());
    const Mixture mixture =
        mixture_of(block.clients(), block.as_received(global_.replicate(count)));
    mix_(mixture);
    block.evaluate(mixture.model);
  });
}

}  // namespace fedhpc
