#include "fedhpc/engine/experiment.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>

#include <ATen/ops/zeros.h>

#include "fedhpc/algorithms/own_work.hpp"
#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/checked.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/engine/checkpoint.hpp"

#include "engine/state_copy.hpp"

namespace fedhpc {

namespace {

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
    const std::string text = error.what_without_backtrace();
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    if (!says("allocate memory") && !says("out of memory")) throw;
    throw refuse();
  }
}

}  // namespace

Experiment::Experiment(Config& config, Communicator& comm, const Resumption* from)
    : config_(config),
      comm_(comm),
      type_(scalar_type(config.run.dtype)),
      device_(config.run.device == DeviceKind::Cuda ? current_cuda_device() : at::kCPU),
      network_(config.network),
      personal_(0) {
  std::optional<Placement> placement;
  together(comm_, [&] {
    within_memory(concat("the data of data.name = ", config_.data.name,
                         " with data.clients = ", config_.data.clients),
                  [&] { placement = open_data(); });
  });
  topology_ = std::make_unique<Topology>(comm_, *std::move(placement));
  together(comm_, [&] {
    within_memory(concat("the model model.name = ", config_.model.name), [&] { open_model(from); });
  });
  together(comm_, [&] { within_memory("the data on the device", [&] { move_to_device(); }); });
  trainer_ = std::make_unique<LocalTrainer>(*model_, *shard_, config_.train,
                                            static_cast<std::uint64_t>(config_.run.seed));
  evaluator_ = std::make_unique<Evaluator>(
      *model_, at::TensorOptions(type_).device(device_),
      config_.run.reproducible ? Chunks::PerClient : Chunks::AcrossClients,
      [this] { comm_.beat(); });
  personal_ = PersonalMetrics(partition_.clients());
  if (device_.is_cpu()) {
    store_ = std::make_unique<ClientStore>(shard_->clients(), config_.store);
  } else {
    device_sharers_ = ranks_on_card(comm_, gpu_library(), device_.index());
    device_memory_.emplace(device_, [this] { return free_device_bytes(); });
    pinned_memory_.emplace(gpu_library());
    store_ = std::make_unique<ClientStore>(shard_->clients(), config_.store, &*device_memory_,
                                           *pinned_memory_);
  }
  const bool has_buffers = model_->layout()->count(Tag::Buffer) > 0;
  if (has_buffers && config_.train.buffers == BufferPlace::Local) {
    buffers_ = std::make_unique<OwnBuffers>(*store_, initial_);
  }
  config_.algorithm->initialise(Setup({.initial = initial_,
                                       .seed = static_cast<std::uint64_t>(config_.run.seed),
                                       .training = config_.train,
                                       .topology = *topology_,
                                       .store = *store_,
                                       .factor_map = factor_map_.get(),
                                       .factors = initial_factors_}));
  if (config_.train.block > 0) {
    block_width_ = config_.train.block;
  } else if (from != nullptr) {
    block_width_ = from->block;
  } else {
    block_width_ =
        choose_block_width(comm_, *trainer_, initial_,
                           {.participants = cohort_limit(),
                            .bytes_per_client = bytes_in_hand(),
                            .free_device_bytes = device_.is_cpu() ? 0 : free_device_bytes()});
  }
  divergence_.emplace(model_->classes());
  own_metrics_ = config_.algorithm->metrics();
  first_record_ = current_model();
  initial_record_ = first_record_;
  if (!has_global(config_.algorithm->models())) initial_record_.global = initial_;
  if (from != nullptr) {
    read_state(*from, comm_, *this);
    rounds_done_ = from->round;
    prepared_ = true;
  }
}

std::int64_t Experiment::cohort_limit() const {
  return config_.algorithm->tiers() == Tiers::ClientEdgeCloud
             ? hierarchical_cohort_limit(placement(), config_.topology)
             : cohort_size(partition_.clients(), config_.topology.participation);
}

std::int64_t Experiment::participants_limit() const {
  return std::min(partition_.clients(), config_.algorithm->cohorts_in_round() * cohort_limit());
}

Summation Experiment::summation() const {
  return config_.run.reproducible ? Summation::Exact : Summation::Fast;
}

Cohort Experiment::draw(std::int64_t round) const {
  const auto seed = static_cast<std::uint64_t>(config_.run.seed);
  return config_.algorithm->tiers() == Tiers::ClientEdgeCloud
             ? draw_hierarchical_cohort(seed, round, placement(), config_.topology)
             : draw_cohort(seed, round, partition_.clients(), config_.topology.participation);
}

Placement Experiment::open_data() {
  DataOptions& data = config_.data;
  if (data.partition == PartitionRule::File && !data.partition_file.empty()) {
    const std::int64_t clients = clients_in_partition_file(data.partition_file);
    const Level given_by = config_.options().origin("data.clients").level;
    const bool given = given_by >= Level::File &&
                       given_by >= config_.options().origin("data.partition_file").level;
    if (given && data.clients != clients) {
      throw ConfigError(concat("data.clients = ", data.clients, ", but data.partition_file = ",
                               data.partition_file, " has ", clients, " clients; drop the key"));
    }
    data.clients = clients;
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
  if (partition_.validation.size() > 0) {
    validation_ = tested_on_validation(partition_);
    validation_shard_ =
        std::make_unique<Shard>(*dataset_, validation_, placement.clients_of_rank(comm_.rank()),
                                preparation, config_.run.dtype);
  }
  if (config_.data.split == DataSplit::Official) {
    // Whole chunks: a sample is scored beside the same others on any number of ranks.
    constexpr std::int64_t kChunk = Evaluator::kChunk;
    const std::int64_t tests = dataset_->num_test();
    const Range chunks = part_of((tests + kChunk - 1) / kChunk, comm_.rank(), comm_.size());
    server_shard_ = std::make_unique<Shard>(
        Shard::server(*dataset_, std::min(chunks.first * kChunk, tests),
                      std::min(chunks.last * kChunk, tests), preparation, config_.run.dtype));
  }
  return placement;
}

void Experiment::open_model(const Resumption* from) {
  model_ = make_model(config_.model, dataset_->shape(), dataset_->classes());
  const LayoutPtr& layout = model_->layout();
  open_weights(from);
  if (!config_.factorisation.factorises()) return;
  factor_map_ = std::make_unique<FactorMap>(config_.factorisation, layout);
  initial_factors_ = factor_map_->initial(initial_, static_cast<std::uint64_t>(config_.run.seed),
                                          config_.algorithm->factor_draw());
  const std::string& file = from != nullptr ? from->checkpoint : config_.model.init_file;
  if (!file.empty()) read_initial_factors_(file, initial_factors_);
}

void Experiment::move_to_device() {
  if (device_.is_cpu()) return;
  for (Stopwatch* watch : {&train_watch_, &aggregate_watch_, &evaluate_watch_}) {
    watch->use_device_events();
  }
  if (config_.run.reproducible) products_in_order_.emplace();
  shard_->use_device_(device_);
  for (Shard* shard : {server_shard_.get(), validation_shard_.get()}) {
    if (shard != nullptr) shard->use_device_(device_);
  }
  initial_.values = initial_.values.to(device_);
  if (factor_map_) initial_factors_.values = initial_factors_.values.to(device_);
}

void Experiment::open_weights(const Resumption* from) {
  const LayoutPtr& layout = model_->layout();
  if (from != nullptr && from->holds_initial_model) {
    initial_ = read_initial_model(from->checkpoint, layout, type_);
    return;
  }
  initial_ = config_.model.init_file.empty()
                 ? Rows{initial_row(*layout, static_cast<std::uint64_t>(config_.run.seed), type_,
                                    config_.model.init),
                        layout}
                 : read_initial_model(config_.model.init_file, layout, type_);
}

RoundServices Experiment::services(LocalTrainer& trainer) {
  return {.topology = *topology_,
          .partition = partition_,
          .model = *model_,
          .shard = *shard_,
          .trainer = trainer,
          .evaluator = *evaluator_,
          .ledger = ledger_,
          .network = network_,
          .train_watch = train_watch_,
          .aggregate_watch = aggregate_watch_,
          .evaluate_watch = evaluate_watch_,
          .type = type_,
          .device = device_,
          .block_width = block_width_,
          .summation = summation(),
          .buffers = buffers_.get()};
}

namespace {

/// What a method does of its own for the clients of a rank: in the bytes of the largest, in the
/// steps of all.
OwnWork own_work_of(const Algorithm& algorithm, std::int64_t batch_size, const Shard& shard,
                    const Shard* validation) {
  OwnWork all;
  const auto* method = dynamic_cast<const HasOwnWork*>(&algorithm);
  if (method == nullptr) return all;
  for (const std::int64_t client : shard.clients()) {
    const std::int64_t train = shard.train_count(client);
    const std::int64_t test =
        shard.test_count(client) + (validation == nullptr ? 0 : validation->test_count(client));
    const std::int64_t batch = batch_size == 0 ? train : std::min(batch_size, train);
    const OwnWork one = method->own_work(train, test, batch);
    all.bytes = std::max(all.bytes, one.bytes);
    all.steps_of_evaluation += one.steps_of_evaluation;
  }
  return all;
}

}  // namespace

PlannedRound Experiment::plan_round() {
  TrainOptions one_step = config_.train;
  one_step.local_epochs = 0;
  one_step.local_steps = 1;
  LocalTrainer trainer(*model_, *shard_, one_step, static_cast<std::uint64_t>(config_.run.seed));
  trainer.stop_passes_after(1);
  std::int64_t client = 0;
  for (std::int64_t other = 1; other < partition_.clients(); ++other) {
    if (partition_.train.count(other) > partition_.train.count(client)) client = other;
  }
  Cohort cohort{.clients = {client}, .edges = {}};
  const bool has_edges = config_.algorithm->tiers() == Tiers::ClientEdgeCloud;
  if (has_edges) cohort.edges = {placement().edge_of(client)};
  RoundServices in_round = services(trainer);
  in_round.absent_idle = true;
  // Seconds of a step, gradient values, seconds of scoring, steps of an evaluation beside.
  Tensor measured = at::zeros({4}, at::kDouble);
  // The first round makes the buffers; what a client does when it comes back for the first time is
  // done in the second one.
  for (std::int64_t number = 1; number <= 3; ++number) {
    Round round(in_round, number, cohort, Round::Evaluated::No);
    ledger_.clear();
    train_watch_.lap();
    config_.algorithm->round(round);
    measured[0].fill_(train_watch_.lap());
    double values = 0;
    for (const TrainStatistics& of_training : round.statistics()) {
      values += of_training.gradient_values;
    }
    measured[1].fill_(values);
  }
  measured[2].fill_(seconds_of_evaluation());
  measured[3].fill_(
      own_work_of(*config_.algorithm, config_.train.batch_size, *shard_, validation_shard_.get())
          .steps_of_evaluation);
  comm_.max_(measured);
  const auto* most = measured.const_data_ptr<double>();
  const std::int64_t samples = partition_.train.count(client);
  const std::int64_t batch =
      config_.train.batch_size == 0 ? samples : std::min(config_.train.batch_size, samples);
  Wish none;
  const auto entries = booked(none);
  const Link link = has_edges ? Link::ClientEdge : Link::ClientCloud;
  return {.up_per_client = entries[ledger_index(link, Direction::Up)],
          .down_per_client = entries[ledger_index(link, Direction::Down)],
          .up_per_edge = entries[ledger_index(Link::EdgeCloud, Direction::Up)],
          .down_per_edge = entries[ledger_index(Link::EdgeCloud, Direction::Down)],
          .seconds_per_step = most[0],
          .seconds_of_evaluation = most[2] + most[3] * most[0],
          .gradient_values_per_sample = most[1] / static_cast<double>(batch)};
}

void Experiment::prepare() {
  if (prepared_) return;
  prepared_ = true;
  Cohort everybody;
  everybody.clients.resize(static_cast<std::size_t>(partition_.clients()));
  std::iota(everybody.clients.begin(), everybody.clients.end(), 0);
  RoundServices before_rounds = services(*trainer_);
  Round round(before_rounds, 0, std::move(everybody), Round::Evaluated::No);
  config_.algorithm->prepare(round);
  train_watch_.lap();
  aggregate_watch_.lap();
}

void Experiment::run(const std::function<void(const RoundReport&)>& observe,
                     const std::function<Wish(std::int64_t)>& ask,
                     const std::function<bool()>& stop_asked) {
  prepare();
  RoundServices in_round = services(*trainer_);
  LeavingRules leaving{.asked = stop_asked, .grace_seconds = config_.run.grace_seconds};
  bool stop = false;
  for (std::int64_t t = rounds_done_ + 1; t <= config_.run.rounds && !stop; ++t) {
    Stopwatch wall;
    wall.start();
    ledger_.clear();
    const bool evaluated = t % config_.run.eval_every == 0 || t == config_.run.rounds;
    // Of the first round nobody knows how long it is.
    leaving.last_round_seconds = last_round_seconds_;
    const bool long_round =
        last_round_seconds_ == 0 || last_round_seconds_ >= config_.run.grace_seconds;
    const bool leavable = config_.algorithm->can_leave_rounds() && long_round;
    in_round.leaving = leavable ? &leaving : nullptr;
    StateCopy before;
    if (leavable) visit_common_state(before);
    Round round(in_round, t, draw(t), evaluated ? Round::Evaluated::Yes : Round::Evaluated::No,
                std::move(partial_));
    config_.algorithm->round(round);
    if (round.is_left()) {
      before.put_back();
      visit_common_state(before);
      partial_ = std::make_unique<PartialRound>(round.partial());
      observe({.round = t - 1, .agreed = {.stop = true}, .left = true});
      return;
    }

    RoundReport report{.round = t,
                       .evaluated = evaluated,
                       .cohort = &round.cohort().clients,
                       .personal = &personal_};
    if (report.evaluated) evaluate(report);
    wall.stop();
    last_round_seconds_ = wall.seconds();
    wall.start();
    total(round, ask(t), report);
    wall.stop();
    report.metrics.wall_seconds = wall.seconds();
    rounds_done_ = t;
    stop = report.agreed.stop || (diverged_since_ > 0 && config_.run.stop_on_divergence);
    observe(report);
  }
}

void Experiment::visit_state(StateVisitor& state) {
  state.clients(*store_);
  visit_common_state(state);
}

void Experiment::visit_common_state(StateVisitor& state) {
  personal_.visit_state(state);
  config_.algorithm->visit_state(state);
}

std::int64_t Experiment::rows_until_summed() const {
  if (!config_.run.reproducible) return 0;
  // An exact sum holds the rows of this rank's share of the cohort.
  const std::int64_t share =
      std::min<std::int64_t>(cohort_limit(), static_cast<std::int64_t>(shard_->clients().size()));
  return share * model_->layout()->size() * static_cast<std::int64_t>(c10::elementSize(type_));
}

std::int64_t Experiment::free_device_bytes() const {
  return gpu_library().free_bytes() / device_sharers_;
}

std::int64_t Experiment::bytes_in_hand() const {
  const RowsInHand rows = config_.algorithm->rows_in_hand();
  const std::int64_t factors = factor_map_ ? factor_map_->factors()->size() : 0;
  return (rows.full * model_->layout()->size() + rows.factors * factors) *
         static_cast<std::int64_t>(c10::elementSize(type_));
}

std::int64_t Experiment::memory_bytes() const {
  const std::int64_t width = model_->layout()->size();
  const auto value = static_cast<std::int64_t>(c10::elementSize(type_));
  // Beside the method's rows: initial weights and the initial model for the record, the last two
  // models evaluated, and the mean with its accumulator in float64.
  constexpr std::int64_t kModels = 5;
  const auto clients = static_cast<std::int64_t>(shard_->clients().size());
  const std::int64_t in_hand = std::min(block_width_, std::max<std::int64_t>(clients, 1));
  const RowsInHand rows = config_.algorithm->rows_in_hand();
  // Rows of all of a rank's clients in hand meet those of other ranks, in slabs of columns: those
  // of this rank, gathered, in order and taken to pieces.
  constexpr std::int64_t kSlabs = 4;
  const char* what = "the bytes of a rank";
  const OwnWork own =
      own_work_of(*config_.algorithm, config_.train.batch_size, *shard_, validation_shard_.get());
  const std::int64_t slab =
      std::min(Coupling::kSlabBytes, checked_product(what, {partition_.clients(), width, value}));
  const std::int64_t participants = std::min(cohort_limit(), clients);
  const std::int64_t of_clients = checked_product(what, {rows.of_rank, clients, width, value});
  const std::int64_t of_cohort =
      checked_product(what, {rows.of_participants, participants, width, value});
  return checked_sum(
      what, {shard_->memory_bytes(), server_shard_ ? server_shard_->memory_bytes() : 0,
             validation_shard_ ? validation_shard_->memory_bytes() : 0,
             checked_product(what, {in_hand, bytes_in_hand()}),
             checked_product(what, {kModels + rows.once, width, value}), of_clients, of_cohort,
             checked_product(what, {rows.numbers_of_rank, clients, value}), 8 * (width + 1),
             trainer_->workspace_bytes(in_hand, type_), store_->full_bytes(), rows_until_summed(),
             own.bytes, rows.of_rank + rows.of_participants > 0 ? kSlabs * slab : 0});
}

}  // namespace fedhpc
