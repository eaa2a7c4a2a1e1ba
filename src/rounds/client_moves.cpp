#include "fedhpc/rounds/client_moves.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include "fedhpc/comm/place.hpp"
#include "fedhpc/training/local_steps.hpp"

namespace fedhpc {

namespace {

/// What a processor computes in the time in which it moves a byte, packing and unpacking included:
/// at 1.5 GB/s and 100 GFlop/s. Slower ones move clients less often than they could.
constexpr double kFlopsOfByte = 64;

}  // namespace

RoundCosts costs_of_round(std::int64_t t, const MovingRules& rules, const TrainOptions& training,
                          const Stragglers& stragglers, const Partition& partition,
                          const ClientStore& store,
                          const std::function<std::int64_t(const Move&)>& sample_bytes) {
  const std::int64_t state = 2 * store.bytes_of_client();
  const double visits_of_byte = rules.count_costs ? kFlopsOfByte / rules.flops_of_sample : 0;
  return {.work =
              [t, &training, &stragglers, &partition](std::int64_t client) {
                return stragglers.part(client, t) *
                       static_cast<double>(sample_visits(training, partition.train.count(client)));
              },
          .of_moving =
              [state, visits_of_byte, sample_bytes](const Move& move) {
                if (visits_of_byte == 0) return 0.0;
                return visits_of_byte * static_cast<double>(state + sample_bytes(move));
              }};
}

ClientMoves::ClientMoves(const Parts& parts, const MovingRules& rules)
    : parts_(parts), rules_(rules), hosts_(parts.world.hosts()) {
  for (int rank = 0; rank < parts_.placement.ranks(); ++rank) {
    if (rank == parts_.world.rank() || parts_.shared == nullptr) continue;
    const void* memory = parts_.shared->of(rank);
    if (memory == nullptr) continue;
    neighbours_[rank] = std::make_shared<const Shard>(
        parts_.shard.reading(parts_.placement.clients_of_rank(rank), memory));
  }
}

bool ClientMoves::sends_samples(int from, int to) const {
  if (parts_.shard.on_demand()) return false;
  return parts_.shared == nullptr || hosts_[from] != hosts_[to];
}

RoundCosts ClientMoves::costs(std::int64_t t) const {
  return costs_of_round(t, rules_, parts_.training, parts_.stragglers, parts_.partition,
                        parts_.store, [this](const Move& move) {
                          // Of other hosts nobody knows whether their ranks share memory: those that can do.
                          if (hosts_[move.from] == hosts_[move.to]) return std::int64_t{0};
                          return parts_.shard.packed_bytes(std::span(&move.client, 1),
                                                           Shard::Packed::Training);
                        });
}

void ClientMoves::begin(std::int64_t t, std::span<const std::int64_t> cohort, Shard::Packed what) {
  require(seated_ && guests_.empty() && away_.empty(), "a round begins when everybody is at home");
  if (parts_.stragglers.train_less() || !std::ranges::equal(cohort, cohort_)) {
    cohort_.assign(cohort.begin(), cohort.end());
    moves_ = plan_round(cohort_, parts_.placement, rules_.range, costs(t));
  }
  what_ = what;
  const int rank = parts_.world.rank();
  for (const Move& move : moves_) {
    if (move.from == rank) {
      leaving_[move.to].push_back(move.client);
      away_.push_back(move.client);
    } else if (move.to == rank) {
      coming_[move.from].push_back(move.client);
      guests_.push_back(move.client);
    }
  }
  seated_ = guests_.empty() && away_.empty();
  std::vector<Parcel> outgoing;
  for (const auto& [to, clients] : leaving_) {
    const bool samples = sends_samples(rank, to);
    if (!samples && !parts_.store.keeps_state()) continue;
    const std::int64_t bytes = samples ? parts_.shard.packed_bytes(clients, what) : 0;
    const Tensor kept = parts_.store.pack(clients);
    Tensor parcel = at::empty({bytes + kept.numel()}, at::kByte);
    auto* memory = parcel.data_ptr<std::uint8_t>();
    if (samples) parts_.shard.pack(clients, memory, what);
    std::memcpy(memory + bytes, kept.const_data_ptr(), static_cast<std::size_t>(kept.numel()));
    outgoing.push_back({to, std::move(parcel)});
  }
  std::vector<int> senders;
  for (const auto& [from, clients] : coming_) {
    if (sends_samples(from, rank) || parts_.store.keeps_state()) senders.push_back(from);
  }
  send(std::move(outgoing), std::move(senders));
}

void ClientMoves::send(std::vector<Parcel> outgoing, std::vector<int> senders) {
  senders_ = std::move(senders);
  if (outgoing.empty() && senders_.empty()) return;
  for (const Parcel& parcel : outgoing) bytes_ += parcel.bytes.numel();
  delivery_ = parts_.world.deliver(std::move(outgoing), senders_);
}

bool ClientMoves::is_away(std::int64_t client) const {
  return std::ranges::binary_search(away_, client);
}

void ClientMoves::advance() {
  if (delivery_) delivery_->advance();
}

void ClientMoves::arrive() {
  if (seated_) return;
  seated_ = true;
  const AtTask moving(parts_.world.place(), Place::Task::Moving);
  if (delivery_) arrived_ = std::exchange(delivery_, nullptr)->finish();
  parts_.store.take_in(guests_);
  const int rank = parts_.world.rank();
  std::vector<std::pair<std::int64_t, std::shared_ptr<const Shard>>> seats;
  for (const auto& [from, clients] : coming_) {
    const auto sender = std::ranges::find(senders_, from);
    const auto* parcel = sender == senders_.end()
                             ? nullptr
                             : arrived_[sender - senders_.begin()].const_data_ptr<std::uint8_t>();
    std::shared_ptr<const Shard> samples;
    std::int64_t bytes = 0;
    if (sends_samples(from, rank) || parts_.shard.on_demand()) {
      bytes = parts_.shard.packed_bytes(clients, what_);
      samples = std::make_shared<const Shard>(parts_.shard.reading(clients, parcel, what_));
    } else {
      samples = neighbours_.at(from);
    }
    if (parts_.store.keeps_state()) parts_.store.unpack(clients, parcel + bytes);
    for (const std::int64_t client : clients) seats.emplace_back(client, samples);
  }
  std::ranges::sort(seats, {}, [](const auto& seat) { return seat.first; });
  parts_.shard.take_in_(std::move(seats));
}

void ClientMoves::go_home() {
  if (guests_.empty() && away_.empty()) return;
  arrive();
  const AtTask moving(parts_.world.place(), Place::Task::Moving);
  if (parts_.store.keeps_state()) {
    std::vector<Parcel> outgoing;
    for (const auto& [home, clients] : coming_) {
      outgoing.push_back({home, parts_.store.pack(clients)});
    }
    std::vector<int> senders;
    for (const auto& [host, clients] : leaving_) senders.push_back(host);
    send(std::move(outgoing), std::move(senders));
    const std::vector<Tensor> back = std::exchange(delivery_, nullptr)->finish();
    for (std::size_t s = 0; s < back.size(); ++s) {
      parts_.store.unpack(leaving_.at(senders_[s]), back[s].const_data_ptr());
    }
  }
  parts_.store.take_in({});
  parts_.shard.take_in_({});
  leaving_.clear();
  coming_.clear();
  guests_.clear();
  away_.clear();
  arrived_.clear();
}

std::int64_t ClientMoves::lap_bytes() { return std::exchange(bytes_, 0); }

}  // namespace fedhpc
