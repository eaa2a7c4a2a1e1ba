// What an experiment says of a round: scores, sums over clients and ranks, models for the record.

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <utility>

#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/experiment.hpp"

#include "comm/first_to_differ.hpp"
#include "core/digest.hpp"
#include "engine/evaluation.hpp"

namespace fedhpc {

namespace {

/// Only takes note of the global model, scoring nothing.
class GlobalModel final : public Evaluation {
 public:
  void global(const Rows& model) override { record_.global = model.clone(); }
  void shared(const Rows& columns) override { record_.global = columns.clone(); }
  void factors(const Rows& factors) override { record_.factors = factors.clone(); }
  void edges(const EdgeRows&) override {}
  void each_block(const std::function<void(EvaluationBlock&)>&) override {}
  const ModelRecord& record() const { return record_; }

 private:
  ModelRecord record_;
};

}  // namespace

std::array<std::int64_t, Ledger::kEntries> Experiment::booked(RoundRequest& request,
                                                              RoundMetrics& metrics) {
  constexpr std::int64_t kWishes = 4;
  constexpr std::int64_t kOfMachine = 3;
  constexpr double kMicro = 1e-6;
  const auto in_micro = [](double seconds) { return static_cast<std::int64_t>(seconds / kMicro); };
  const int ranks = parts_.comm.size();
  metrics.seconds_train = parts_.books.train_watch.lap();
  const double waited = parts_.comm.seconds_waited();
  const std::clock_t computed = std::clock();
  Tensor sums = at::zeros({Ledger::kEntries + kWishes + kOfMachine + ranks}, at::kLong);
  auto* values = sums.data_ptr<std::int64_t>();
  std::copy(parts_.books.ledger.entries().begin(), parts_.books.ledger.entries().end(), values);
  auto* wishes = values + Ledger::kEntries;
  wishes[0] = request.stop ? 1 : 0;
  wishes[1] = request.checkpoint ? 1 : 0;
  wishes[2] = parts_.comm.rank() == 0 ? in_micro(last_round_seconds_) : 0;
  wishes[3] = parts_.comm.rank() == 0 ? divergence_->since() : 0;
  auto* of_machine = wishes + kWishes;
  of_machine[0] = in_micro(waited - std::exchange(seconds_waited_, waited));
  of_machine[1] = parts_.moves ? parts_.moves->lap_bytes() : 0;
  of_machine[2] = in_micro(
      static_cast<double>(computed - std::exchange(processor_time_, computed)) / CLOCKS_PER_SEC);
  auto* of_ranks = of_machine + kOfMachine;
  of_ranks[parts_.comm.rank()] = in_micro(metrics.seconds_train);
  parts_.comm.sum_(sums);
  request = {.stop = wishes[0] > 0, .checkpoint = wishes[1] > 0};
  last_round_seconds_ = kMicro * static_cast<double>(wishes[2]);
  diverged_since_ = wishes[3];
  metrics.seconds_wait = kMicro * static_cast<double>(of_machine[0]) / ranks;
  metrics.bytes_moved = static_cast<double>(of_machine[1]);
  metrics.seconds_cpu = kMicro * static_cast<double>(of_machine[2]);
  metrics.balance = balance_of(std::vector<double>(of_ranks, of_ranks + ranks));
  std::array<std::int64_t, Ledger::kEntries> entries{};
  std::copy_n(values, entries.size(), entries.begin());
  return entries;
}

ModelRecord Experiment::current_model() const {
  GlobalModel evaluation;
  parts_.method().evaluate(evaluation);
  return evaluation.record();
}

void Experiment::compare_ranks(std::int64_t round) {
  if (parts_.comm.size() == 1 || ranks_differ_) return;
  Digest digest;
  if (evaluated_.global.values.defined()) {
    const Tensor model = evaluated_.global.values.to(at::kCPU).contiguous();
    digest.add(model.const_data_ptr(), model.nbytes());
  }
  const auto other = first_to_differ(parts_.comm, digest.text());
  if (other == 0) return;
  ranks_differ_ = true;
  run_log().of_run(LogLevel::Warning,
                   concat("rank 0 and rank ", other, " have different global models after round ",
                          round, ": the method draws or adds something that depends on the rank; ",
                          "the result is that of rank 0"));
}

void Experiment::evaluate(RoundReport& report) {
  const Timed timed(parts_.books.evaluate_watch);
  const AtTask evaluation_of_round(parts_.comm.place(), Place::Task::Evaluation);
  RankEvaluation evaluation(*parts_.evaluator, *parts_.shard, parts_.validation_shard.get(),
                            parts_.server_shard.get(), parts_.shard->clients(), *parts_.topology,
                            parts_.adaptation_after(report.round), parts_.block_width);
  parts_.method().evaluate(evaluation);
  evaluated_ = evaluation.record();
  const auto require_told = [&](bool told, bool handed_over, const char* what) {
    if (!told || handed_over) return;
    throw ConfigError(concat("algorithm.name = ", parts_.config.algorithm_name, " tells of ", what,
                             ", and its evaluate() hands over none"));
  };
  const Models models = parts_.method().traits().models;
  require_told(has_global(models), evaluated_.global.values.defined(), "a global model");
  require_told(has_personal(models), evaluation.has_personal(), "models of clients");
  compare_ranks(report.round);

  // Of all clients: by the global model, by each one's own, which is the global one for a method
  // without such.
  const auto gather = [&](const ClientScores& scores) {
    std::vector<Score> global = gather_by_client(scores.global);
    std::vector<Score> own = evaluation.has_personal() ? gather_by_client(scores.personal) : global;
    return std::pair(std::move(global), std::move(own));
  };
  const auto [global, own] = gather(evaluation.on_test());
  const std::vector<Score> official = gather_scores(parts_.comm, evaluation.official());
  if (evaluation.has_edges()) {
    const std::vector<Score> edge = gather_by_client(evaluation.edge());
    if (parts_.comm.rank() == 0) note_edges(edge, report.metrics);
  }
  if (parts_.validation_shard) {
    const auto [validated, validated_own] = gather(evaluation.on_validation());
    if (parts_.comm.rank() == 0) note_validation(sum_of(validated), validated_own, report.metrics);
  }
  if (parts_.comm.rank() != 0) return;
  personal_.update(own, *report.cohort, report.metrics);
  report.personal_scored = sum_of(own).samples > 0;
  if (!evaluated_.global.values.defined()) return;
  const Score scored = sum_of(parts_.server_shard ? official : global);
  const Measured all(scored);
  report.global_scored = scored.samples > 0;
  if (measure_of(parts_.loss) == "accuracy") report.metrics.global_accuracy = all.accuracy;
  report.metrics.global_loss = all.loss;
  report.metrics.global_perplexity = all.perplexity;
  report.metrics.global_f1 = all.f1;
  report.metrics.global_rmse = all.rmse;
}

void Experiment::note_edges(const std::vector<Score>& scores, RoundMetrics& metrics) const {
  const auto mean = [&](double Measured::*measure) {
    return mean_over_edges(scores, parts_.placement(), measure);
  };
  metrics.edge_accuracy = mean(&Measured::accuracy);
  metrics.edge_rmse = mean(&Measured::rmse);
}

void Experiment::note_validation(const Score& global, const std::vector<Score>& own,
                                 RoundMetrics& metrics) const {
  const Measured mean = mean_over_clients(own);
  metrics.validation_personal_accuracy = mean.accuracy;
  metrics.validation_personal_loss = mean.loss;
  metrics.validation_personal_f1 = mean.f1;
  metrics.validation_personal_rmse = mean.rmse;
  if (!evaluated_.global.values.defined()) return;
  const Measured all(global);
  metrics.validation_global_accuracy = all.accuracy;
  metrics.validation_global_loss = all.loss;
  metrics.validation_global_f1 = all.f1;
  metrics.validation_global_rmse = all.rmse;
}

std::vector<Score> Experiment::gather_by_client(const std::vector<Score>& mine) {
  const std::vector<Score> by_rank = gather_scores(parts_.comm, mine);
  std::vector<Score> scores;
  if (parts_.comm.rank() != 0) return scores;
  for (const std::int64_t place : gathered_places(parts_.placement()))
    scores.push_back(by_rank[place]);
  return scores;
}

void Experiment::total(RoundState& round, const RoundRequest& request, RoundReport& report) {
  const AtTask reporting(parts_.comm.place(), Place::Task::Report);
  const std::vector<TrainStatistics>& statistics = round.statistics;
  const auto count = static_cast<std::int64_t>(statistics.size());
  Tensor numbers = at::empty({2 * count, 1}, at::kDouble);  // losses, then samples
  std::vector<std::int64_t> kinds(2 * statistics.size(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.data_ptr<double>()[i] = statistics[i].loss;
    numbers.data_ptr<double>()[count + i] = statistics[i].samples;
    kinds[static_cast<std::size_t>(count + i)] = 1;
  }
  WeightedSum sum(2, 1, parts_.context.summation);
  sum.add(kinds, std::vector<double>(kinds.size(), 1), numbers);
  const Tensor sums = sum.total(*parts_.topology, Among::All);
  RoundMetrics& metrics = report.metrics;
  const auto* values = sums.const_data_ptr<double>();
  constexpr std::size_t kSamples = 2;  // behind the losses and their sum of weights
  report.train_samples = values[kSamples];
  if (values[kSamples] > 0) metrics.train_loss = values[0] / values[kSamples];
  if (parts_.comm.rank() == 0) look_for_divergence(report);
  report.agreed = request;
  const auto entries = booked(report.agreed, metrics);
  report.diverged_since = diverged_since_;

  metrics.participants = static_cast<double>(round.cohort.clients.size());
  const auto bytes = [&](Link link, Direction direction) {
    return static_cast<double>(entries[ledger_index(link, direction)]);
  };
  if (parts_.has_edge_models()) {
    metrics.bytes_up_client_edge = bytes(Link::ClientEdge, Direction::Up);
    metrics.bytes_down_client_edge = bytes(Link::ClientEdge, Direction::Down);
    metrics.bytes_up_edge_cloud = bytes(Link::EdgeCloud, Direction::Up);
    metrics.bytes_down_edge_cloud = bytes(Link::EdgeCloud, Direction::Down);
  } else {
    metrics.bytes_up_client_cloud = bytes(Link::ClientCloud, Direction::Up);
    metrics.bytes_down_client_cloud = bytes(Link::ClientCloud, Direction::Down);
  }
  metrics.own = noted_by(round);
  metrics.simulated_seconds = round.simulated_seconds();
  metrics.seconds_aggregate = parts_.books.aggregate_watch.lap();
  metrics.seconds_evaluate = parts_.books.evaluate_watch.lap();
}

void Experiment::look_for_divergence(const RoundReport& report) {
  const RoundMetrics& metrics = report.metrics;
  std::vector<double> losses;
  if (report.train_samples > 0) losses.push_back(metrics.train_loss);
  // A loss is known where there were test samples: it may be no number itself.
  if (report.global_scored) losses.push_back(metrics.global_loss);
  if (report.personal_scored) losses.push_back(metrics.personal_loss);
  if (report.evaluated && evaluated_.global.values.defined() &&
      !at::isfinite(evaluated_.global.values).all().item<bool>()) {
    losses.push_back(std::numeric_limits<double>::infinity());
  }
  divergence_->look_at(report.round, losses, report.evaluated);
}

std::vector<double> Experiment::noted_by(RoundState& round) const {
  std::vector<std::string> names;
  if (parts_.accountant) {
    round.notes.set(Privacy::kEpsilon, parts_.accountant->epsilon(round.number));
  }
  for (const Metric& metric : own_metrics()) {
    names.push_back(metric.noted_name.empty() ? metric.name : metric.noted_name);
  }
  Topology& topology = *parts_.topology;
  std::vector<double> values = round.notes.means(names, topology, parts_.context.summation);
  for (std::size_t m = 0; m < values.size(); ++m) {
    const std::optional<double>& quantile = own_metrics()[m].quantile;
    if (quantile) values[m] = round.notes.quantile(names[m], *quantile, topology);
  }
  return values;
}

void Experiment::gather_personal_models(const VisitModels& visit) const {
  PersonalCollector collector(parts_.comm, *parts_.shard, parts_.model->layout(),
                              parts_.context.type, parts_.adaptation_after(rounds_done_),
                              parts_.block_width, visit);
  parts_.method().evaluate(collector);
}

}  // namespace fedhpc
