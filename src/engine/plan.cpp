#include "fedhpc/engine/plan.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/allocation_meter.hpp"
#include "fedhpc/core/checked.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/process_memory.hpp"

#include "engine/evaluation.hpp"
#include "engine/plan_parts.hpp"
#include "engine/state_copy.hpp"

namespace fedhpc {

namespace {

/// Rounds and evaluations on trial.
class Trials {
 public:
  explicit Trials(Parts& parts)
      : parts_(parts),
        one_step_(steps(parts.config.train, 1)),
        one_(*parts.model, *parts.shard, one_step_, parts.context),
        two_steps_(steps(parts.config.train, 2)),
        two_(*parts.model, *parts.shard, two_steps_, parts.context) {
    one_.stop_passes_after(1);
    two_.stop_passes_after(2);
    find_clients();
  }

  PlannedRun run() {
    prepare();
    const std::int64_t before_rounds = peak_memory();
    PlannedRun planned = of_one_client();
    planned.memory_bytes = greatest(parts_.comm, std::max(before_rounds, peak_of_rounds()));
    planned.seconds_of_evaluation = greatest(parts_.comm, seconds_of_evaluation());
    planned.memory_bytes = std::max(planned.memory_bytes, greatest(parts_.comm, peak_memory()));
    // What a run keeps besides: clients' rows, and of the record the first and the last model.
    constexpr std::int64_t kRecords = 2;
    const auto records = kRecords * static_cast<std::int64_t>(parts_.initial.values.nbytes());
    planned.clients_with_rows = clients_with_rows();
    const std::int64_t rows =
        bytes_of_rows(parts_, planned, std::ssize(parts_.shard->clients())) - host_bytes();
    planned.memory_bytes = greatest(
        parts_.comm,
        checked_sum(kWhat, {planned.memory_bytes, records, std::max<std::int64_t>(0, rows)}));
    planned.seconds_of_server = greatest(parts_.comm, coupled_ ? seconds_of_server_ : 0.0);
    return planned;
  }

 private:
  static TrainOptions steps(TrainOptions options, std::int64_t count) {
    options.local_epochs = 0;
    options.local_steps = count;
    options.stragglers = {0};
    return options;
  }

  /// The rank that has the client of the most samples, and its clients, those of the most first.
  void find_clients() {
    const auto more = [&](std::int64_t a, std::int64_t b) {
      return parts_.partition.train.count(a) > parts_.partition.train.count(b);
    };
    std::int64_t largest = 0;
    for (std::int64_t other = 1; other < parts_.partition.clients(); ++other) {
      if (more(other, largest)) largest = other;
    }
    for (rank_ = 0; rank_ < parts_.placement().ranks(); ++rank_) {
      clients_ = parts_.placement().clients_of_rank(rank_);
      if (std::ranges::find(clients_, largest) != clients_.end()) break;
    }
    std::ranges::stable_sort(clients_, more);
  }

  void prepare() {
    RoundServices services = parts_.services(one_);
    RoundState state(services, 0, parts_.everybody(), RoundState::Evaluated::No);
    Round round(state);
    parts_.method().prepare(round);
    state.check_unsent();
  }

  /// A round of these clients; its statistics.
  std::vector<TrainStatistics> round_of(const std::vector<std::int64_t>& clients,
                                        LocalTrainer& trainer) {
    Cohort cohort{.clients = clients, .edges = {}};
    if (parts_.has_edge_models()) {
      for (const std::int64_t client : cohort.clients) {
        cohort.edges.push_back(parts_.placement().edge_of(client));
      }
      std::ranges::sort(cohort.edges);
      cohort.edges.erase(std::unique(cohort.edges.begin(), cohort.edges.end()), cohort.edges.end());
    }
    RoundServices services = parts_.services(trainer);
    services.absent_idle = true;
    // As the first round of a run, which may be left: what it is then put back to, and each mean.
    const LeavingRules leaving{.asked = [] { return false; }};
    StateCopy before;
    if (parts_.method().traits().can_leave_rounds) {
      services.leaving = &leaving;
      parts_.links->visit_state(before);
      parts_.method().visit_state(before);
    }
    RoundState state(services, ++rounds_, cohort, RoundState::Evaluated::No);
    Round round(state);
    parts_.books.ledger.clear();
    parts_.books.train_watch.lap();
    Stopwatch wall;
    wall.start();
    parts_.method().round(round);
    wall.stop();
    seconds_of_server_ = wall.seconds() - parts_.books.train_watch.seconds();
    absent_act_ = absent_act_ || state.absent_act;
    coupled_ = coupled_ || state.coupled;
    return state.statistics;
  }

  /// What all ranks have booked in the last round, by link and direction.
  Tensor booked() {
    Tensor sums = at::empty({Ledger::kEntries}, at::kLong);
    std::ranges::copy(parts_.books.ledger.entries(), sums.data_ptr<std::int64_t>());
    parts_.comm.sum_(sums);
    return sums;
  }

  PlannedRun of_one_client() {
    std::vector<TrainStatistics> statistics;
    // The first round makes the buffers; what a client does when it comes back for the first time
    // is done in the second one.
    Tensor sums, before;
    double seconds = 0;
    for (int repetition = 0; repetition < 3; ++repetition) {
      statistics = round_of(first_clients(1), one_);
      seconds = parts_.books.train_watch.lap();
      before = std::exchange(sums, booked());
    }
    if (!sums.equal(before)) {
      run_log().of_run(LogLevel::Note,
                       "bytes change with the rounds: those of a client's third one");
    }
    double values = 0;
    for (const TrainStatistics& of_training : statistics) values += of_training.gradient_values;
    evaluate(first_clients(1));
    const std::int64_t samples = parts_.partition.train.count(clients_.front());
    const std::int64_t size = parts_.config.train.batch_size;
    const std::int64_t batch = size == 0 ? samples : std::min(size, samples);
    const auto bytes = [&](Link link, Direction direction) {
      return sums.const_data_ptr<std::int64_t>()[ledger_index(link, direction)];
    };
    const Link link = parts_.has_edge_models() ? Link::ClientEdge : Link::ClientCloud;
    return {
        .up_per_client = bytes(link, Direction::Up),
        .down_per_client = bytes(link, Direction::Down),
        .up_per_edge = bytes(Link::EdgeCloud, Direction::Up),
        .down_per_edge = bytes(Link::EdgeCloud, Direction::Down),
        .seconds_per_step = greatest(parts_.comm, seconds),
        .gradient_values_per_sample = greatest(parts_.comm, values) / static_cast<double>(batch)};
  }

  /// The first `count` clients, ascending.
  std::vector<std::int64_t> first_clients(std::int64_t count) const {
    std::vector<std::int64_t> first(clients_.begin(), clients_.begin() + count);
    std::ranges::sort(first);
    return first;
  }

  /// As many as a round may have, some of every rank.
  std::vector<std::int64_t> participants_of_all_ranks() const {
    const std::int64_t all = parts_.partition.clients();
    const std::int64_t count = std::max<std::int64_t>(parts_.cohort_limit(), 1);
    std::vector<std::int64_t> clients;
    for (std::int64_t i = 0; i < count; ++i) clients.push_back(i * all / count);
    return clients;
  }

  std::int64_t host_bytes() const { return parts_.store->memory_bytes().host; }
  /// Those that may take part, or all of a method that writes rows of others, too. Collective.
  std::int64_t clients_with_rows() {
    Tensor made = at::full({2}, host_bytes(), at::kLong);  // and of all clients
    made[1] = parts_.store->full_bytes();
    parts_.comm.sum_(made);
    const std::int64_t all = parts_.partition.clients();
    const bool written = made[0].item<std::int64_t>() >= made[1].item<std::int64_t>();
    if (absent_act_ || written) return all;
    return std::min(
        all, checked_product(kWhat, {parts_.participants_limit(), parts_.config.run.rounds}));
  }

  /// Of rounds of as many participants as this rank may have; more than two blocks are not tried.
  std::int64_t peak_of_rounds() {
    const auto mine = static_cast<std::int64_t>(parts_.placement().clients_of_rank(rank_).size());
    const std::int64_t participants =
        std::min(std::max<std::int64_t>(parts_.cohort_limit(), 1), mine);
    const std::int64_t width = std::min(parts_.block_width, participants);
    const Peak of_block = peak_of(first_clients(width));
    // Work between clients grows faster than their number.
    if (coupled_) return std::max(of_block.process, peak_of(participants_of_all_ranks()).process);
    const std::int64_t tried = std::min(participants, 2 * width);
    if (tried == width) return of_block.process;
    const Peak of_two = peak_of(first_clients(tried));
    // What a process takes moves by more than a client's tensors: these alone tell what each
    // further one adds.
    const std::int64_t of_client =
        std::max<std::int64_t>(0, of_two.tensors - of_block.tensors) / (tried - width);
    return checked_sum(kWhat, {std::max(of_block.process, of_two.process),
                               checked_product(kWhat, {participants - tried, of_client})});
  }

  struct Peak {
    std::int64_t process = 0;  // bytes
    std::int64_t tensors = 0;
  };

  Peak peak_of(const std::vector<std::int64_t>& clients) {
    restart_peak_memory();
    meter_.restart();
    for (int repetition = 0; repetition < 2; ++repetition) {
      round_of(clients, two_);
      evaluate(clients);
    }
    return {.process = peak_memory(), .tensors = meter_.peak()};
  }

  /// Scores the models of those of these clients that are this rank's, but on no official test set.
  void evaluate(std::span<const std::int64_t> clients) {
    std::vector<std::int64_t> mine;
    std::ranges::copy_if(clients, std::back_inserter(mine),
                         [&](std::int64_t client) { return parts_.shard->holds(client); });
    RankEvaluation evaluation(*parts_.evaluator, *parts_.shard, parts_.validation_shard.get(),
                              nullptr, mine, *parts_.topology, parts_.adaptation_after(rounds_),
                              parts_.block_width);
    parts_.method().evaluate(evaluation);
  }

  /// Of this rank, by that of a few clients and of a chunk of the official test set.
  double seconds_of_evaluation() {
    std::vector<std::int64_t> few;
    std::int64_t samples = 0;
    for (const std::int64_t client : parts_.shard->clients()) {
      if (samples >= Evaluator::kChunk) break;
      few.push_back(client);
      samples += tests_of(client);
    }
    std::int64_t all = 0;
    for (const std::int64_t client : parts_.shard->clients()) all += tests_of(client);
    const double of_few = seconds_of([&] { evaluate(few); });
    const double of_clients =
        samples > 0 ? of_few * static_cast<double>(all) / static_cast<double>(samples) : 0;
    if (!parts_.server_shard || !has_global(parts_.method().traits().models)) return of_clients;
    return of_clients +
           seconds_of([&] { parts_.evaluator->each_chunk(parts_.initial, *parts_.server_shard); });
  }

  std::int64_t tests_of(std::int64_t client) const {
    const Shard* validation = parts_.validation_shard.get();
    return parts_.shard->test_count(client) +
           (validation == nullptr ? 0 : validation->test_count(client));
  }

  template <typename Work>
  static double seconds_of(const Work& work) {
    work();  // makes the buffers
    Stopwatch watch;
    watch.start();
    work();
    watch.stop();
    return watch.seconds();
  }

  static constexpr const char* kWhat = "the bytes of a rank";

  Parts& parts_;
  AllocationMeter meter_;
  TrainOptions one_step_;
  LocalTrainer one_;
  TrainOptions two_steps_;
  LocalTrainer two_;  // what the second step needs of memory, all do
  std::int64_t rounds_ = 0;
  bool absent_act_ = false;
  bool coupled_ = false;
  double seconds_of_server_ = 0;  // of the last round, all but training
  int rank_ = 0;
  std::vector<std::int64_t> clients_;
};

}  // namespace

PlannedRun plan_run(Parts& parts) { return Trials(parts).run(); }

}  // namespace fedhpc
