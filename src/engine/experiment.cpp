#include "fedhpc/engine/experiment.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace fedhpc {

namespace {

/// Scores of one model as given by an algorithm's evaluate(), on this rank's clients.
class LocalEvaluation final : public Evaluation {
 public:
  LocalEvaluation(Evaluator& evaluator, const Shard& shard, const Shard* server)
      : evaluator_(evaluator), shard_(shard), server_(server) {}

  void global(const Rows& model) override {
    model_ = model.clone();
    clients = evaluator_.each_client(model, shard_);
    if (server_ != nullptr) official = evaluator_.each_client(model, *server_).front();
  }

  const Rows& model() const { return model_; }

  std::vector<Score> clients;  // of this rank, in order of id
  Score official;              // this rank's part of the official test set

 private:
  Evaluator& evaluator_;
  const Shard& shard_;
  const Shard* server_;
  Rows model_;
};

/// All ranks' scores in order of client, on rank 0.
std::vector<Score> gather_scores(Communicator& comm, const std::vector<Score>& mine) {
  Tensor packed = at::empty({static_cast<std::int64_t>(mine.size()), 3}, at::kDouble);
  auto* values = packed.data_ptr<double>();
  for (const Score& score : mine) {
    *values++ = score.samples;
    *values++ = score.correct;
    *values++ = score.loss;
  }
  const Tensor all = comm.gather(packed, 0);
  std::vector<Score> scores;
  for (std::int64_t c = 0; c < all.size(0); ++c) {
    const auto* row = all.const_data_ptr<double>() + 3 * c;
    scores.push_back({row[0], row[1], row[2]});
  }
  return scores;
}

/// Throws ConfigError for a request that leaves clients without samples by its sizes alone. (A
/// client left empty by a draw or by a file is no error: it never trains.)
void check_sizes(const DataOptions& data, const Dataset& dataset, const Partition& partition) {
  const std::int64_t samples =
      dataset.num_train() + (data.split == DataSplit::Client ? dataset.num_test() : 0);
  if (data.partition != PartitionRule::File && data.clients > samples) {
    throw ConfigError(concat("data.clients = ", data.clients, " is more than the ", samples,
                             " samples of ", data.name,
                             "; allowed: at most one client per sample"));
  }
  if (partition.train.samples.empty()) {
    throw ConfigError(
        data.partition == PartitionRule::File
            ? concat("data.partition_file = ", data.partition_file,
                     " gives no client a training sample; give another file")
            : concat(
                  "data.train_fraction = ", data.train_fraction,
                  " leaves no client a training sample; raise it, or give clients more samples"));
  }
}

/// Calls `build`; memory that is not there becomes a ConfigError with `what` was being made.
void within_memory(const std::string& what, const std::function<void()>& build) {
  const auto refuse = [&] { return ConfigError(concat(what, " does not fit into memory")); };
  try {
    build();
  } catch (const std::bad_alloc&) {
    throw refuse();
  } catch (const std::length_error&) {
    throw refuse();
  } catch (const c10::Error& error) {
    if (std::string(error.what_without_backtrace()).find("allocate memory") == std::string::npos) {
      throw;
    }
    throw refuse();
  }
}

}  // namespace

Experiment::Experiment(Config& config, Communicator& comm)
    : config_(config), comm_(comm), type_(scalar_type(config.run.dtype)), personal_(0) {
  std::optional<Placement> placement;
  together(comm_, [&] {
    within_memory(concat("the data of data.name = ", config_.data.name,
                         " with data.clients = ", config_.data.clients),
                  [&] { placement = open_data(); });
  });
  topology_ = std::make_unique<Topology>(comm_, *std::move(placement));
  together(comm_, [this] {
    within_memory(concat("the model model.name = ", config_.model.name), [this] { open_model(); });
  });
  trainer_ = std::make_unique<LocalTrainer>(*model_, *shard_, config_.train,
                                            static_cast<std::uint64_t>(config_.run.seed));
  evaluator_ = std::make_unique<Evaluator>(*model_, type_);
  personal_ = PersonalMetrics(partition_.clients());
  block_width_ =
      config_.train.block > 0
          ? config_.train.block
          : measure_block_width(comm_, *model_, *shard_, config_.train, initial_,
                                cohort_size(partition_.clients(), config_.topology.participation));
  config_.algorithm->initialise(Setup(initial_));
}

Placement Experiment::open_data() {
  DataOptions& data = config_.data;
  if (data.partition == PartitionRule::File && !data.partition_file.empty()) {
    data.clients = clients_in_partition_file(data.partition_file);
  }
  dataset_ = open_dataset(data);
  partition_ = make_partition(data, *dataset_);
  check_sizes(data, *dataset_, partition_);
  const std::int64_t edges = config_.topology.edges;
  Placement placement(edges_of_clients(partition_.clients(), edges, partition_.edge_of_client),
                      edges, comm_.size());
  const Preparation preparation = make_preparation(data, *dataset_);
  shard_ = std::make_unique<Shard>(*dataset_, partition_, placement.clients_of_rank(comm_.rank()),
                                   preparation, config_.run.dtype);
  if (config_.data.split == DataSplit::Official) {
    const Range part = part_of(dataset_->num_test(), comm_.rank(), comm_.size());
    server_shard_ = std::make_unique<Shard>(
        Shard::server(*dataset_, part.first, part.last, preparation, config_.run.dtype));
  }
  return placement;
}

void Experiment::open_model() {
  model_ = make_model(config_.model, dataset_->shape(), dataset_->classes());
  const LayoutPtr& layout = model_->layout();
  initial_ = config_.model.init_file.empty()
                 ? Rows{initial_row(*layout, static_cast<std::uint64_t>(config_.run.seed), type_,
                                    config_.model.init),
                        layout}
                 : read_initial_model(config_.model.init_file, layout, type_);
}

void Experiment::run(const std::function<void(const RoundReport&)>& observe) {
  RoundServices services{.comm = comm_,
                         .model = *model_,
                         .shard = *shard_,
                         .trainer = *trainer_,
                         .ledger = ledger_,
                         .train_watch = train_watch_,
                         .aggregate_watch = aggregate_watch_,
                         .type = type_,
                         .block_width = block_width_};
  const auto seed = static_cast<std::uint64_t>(config_.run.seed);
  for (std::int64_t t = 1; t <= config_.run.rounds; ++t) {
    Stopwatch wall;
    wall.start();
    ledger_.clear();
    Round round(services, t,
                draw_cohort(seed, t, partition_.clients(), config_.topology.participation).clients);
    config_.algorithm->round(round);

    RoundReport report{.round = t, .cohort = &round.cohort(), .personal = &personal_};
    report.evaluated = t % config_.run.eval_every == 0 || t == config_.run.rounds;
    if (report.evaluated) evaluate(report);
    total(round, report);
    wall.stop();
    report.metrics.wall_seconds = wall.seconds();
    observe(report);
  }
}

void Experiment::evaluate(RoundReport& report) {
  const Timed timed(evaluate_watch_);
  LocalEvaluation evaluation(*evaluator_, *shard_, server_shard_.get());
  config_.algorithm->evaluate(evaluation);
  global_ = evaluation.model();

  const std::vector<Score> scores = gather_scores(comm_, evaluation.clients);
  const std::vector<Score> official = gather_scores(comm_, {evaluation.official});
  if (comm_.rank() != 0) return;
  personal_.update(scores, *report.cohort, report.metrics);
  Score all;
  for (const Score& score : server_shard_ ? official : scores) {
    all.samples += score.samples;
    all.correct += score.correct;
    all.loss += score.loss;
  }
  if (all.samples > 0) {
    report.metrics.global_accuracy = all.correct / all.samples;
    report.metrics.global_loss = all.loss / all.samples;
  }
}

void Experiment::total(const Round& round, RoundReport& report) {
  // One reduction for all sums of the round: train loss, samples, booked bytes (exact below 2^53).
  Tensor sums = at::zeros({2 + Ledger::kEntries}, at::kDouble);
  auto* values = sums.data_ptr<double>();
  values[0] = round.statistics().loss;
  values[1] = round.statistics().samples;
  for (std::size_t i = 0; i < ledger_.entries().size(); ++i) {
    values[2 + i] = static_cast<double>(ledger_.entries()[i]);
  }
  comm_.sum_(sums);
  RoundMetrics& metrics = report.metrics;
  report.train_samples = values[1];
  if (values[1] > 0) metrics.train_loss = values[0] / values[1];
  metrics.participants = static_cast<double>(round.cohort().size());
  metrics.bytes_up_client_cloud = values[2 + ledger_index(Link::ClientCloud, Direction::Up)];
  metrics.bytes_down_client_cloud = values[2 + ledger_index(Link::ClientCloud, Direction::Down)];
  metrics.seconds_train = train_watch_.lap();
  metrics.seconds_aggregate = aggregate_watch_.lap();
  metrics.seconds_evaluate = evaluate_watch_.lap();
}

std::vector<std::int64_t> Experiment::gather_label_histogram() const {
  Tensor mine = at::empty({static_cast<std::int64_t>(shard_->clients().size()), model_->classes()},
                          at::kLong);
  auto* row = mine.data_ptr<std::int64_t>();
  for (const std::int64_t client : shard_->clients()) {
    for (const std::int64_t count : shard_->label_histogram(client)) *row++ = count;
  }
  const Tensor all = comm_.gather(mine, 0);
  const auto* begin = all.const_data_ptr<std::int64_t>();
  return {begin, begin + all.numel()};
}

std::int64_t Experiment::memory_bytes() const {
  const std::int64_t width = model_->layout()->size();
  const auto value = static_cast<std::int64_t>(c10::elementSize(type_));
  // In hand per client: the row received, the row trained, their difference. Beside them: the
  // global, initial and last evaluated model, and the mean's accumulator in float64.
  const std::int64_t in_hand = std::min(
      block_width_, std::max<std::int64_t>(static_cast<std::int64_t>(shard_->clients().size()), 1));
  return shard_->memory_bytes() + (server_shard_ ? server_shard_->memory_bytes() : 0) +
         3 * in_hand * width * value + 3 * width * value + 8 * (width + 1) +
         trainer_->workspace_bytes(in_hand, type_);
}

}  // namespace fedhpc
