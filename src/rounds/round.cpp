#include "fedhpc/rounds/round.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>

#include <ATen/ops/full.h>

namespace fedhpc {

Blocks::Blocks(RoundState& state, std::vector<std::int64_t> clients, Work work)
    : state_(state), clients_(std::move(clients)) {
  const Partition& partition = state_.services.partition;
  const auto is_own = [&](std::int64_t client) { return state_.services.shard.holds(client); };
  // Clients of like size side by side: long runs of equal batches, few idle rows in a block's last
  // steps.
  std::stable_sort(clients_.begin(), clients_.end(), [&](std::int64_t a, std::int64_t b) {
    return partition.train.count(a) > partition.train.count(b);
  });
  const LocalTrainer& trainer = state_.services.trainer;
  if (trainer.stragglers().train_less()) {
    std::ranges::stable_sort(clients_, std::greater<>(), [&](std::int64_t client) {
      const std::int64_t all = trainer.steps_for(partition.train.count(client));
      return trainer.stragglers().steps(all, client, state_.number);
    });
  }
  over_ = work == Work::None || !state_.log.begin_pass(clients_);
  state_.sent.begin_pass();
  own_ = static_cast<std::size_t>(std::stable_partition(clients_.begin(), clients_.end(), is_own) -
                                  clients_.begin());
  if (!over_) training_.emplace(state_.services.topology.world().place(), Place::Task::Training);
}

Block* Blocks::next() {
  if (over_) return nullptr;
  Communicator& world = state_.services.topology.world();
  if (block_) {
    state_.log.add_done(block_->clients());
    block_.reset();
  }
  const auto width = static_cast<std::size_t>(state_.services.block_width);
  const std::size_t left = clients_.size() - first_;
  world.progress();
  if (state_.services.moves != nullptr) state_.services.moves->advance();
  if (left == 0 || state_.log.leaves((left + width - 1) / width)) {
    if (left == 0) state_.log.end_pass();
    training_.reset();
    over_ = true;
    return nullptr;
  }
  if (first_ == own_) state_.services.moves->arrive();
  const std::size_t count = std::min(width, first_ < own_ ? own_ - first_ : left);
  block_.emplace(state_, std::span(clients_).subspan(first_, count));
  world.place().client = clients_[first_];
  world.place().clients = static_cast<std::int32_t>(count);
  first_ += count;
  return &*block_;
}

Blocks Round::blocks() { return {state_, state_.here()}; }

Blocks Round::absent_blocks() {
  state_.absent_act = true;
  std::vector<std::int64_t> absent;
  std::ranges::set_difference(state_.services.shard.clients(), state_.cohort.clients,
                              std::back_inserter(absent));
  return {state_, std::move(absent),
          state_.services.absent_idle ? Blocks::Work::None : Blocks::Work::All};
}

void Round::each_block(const std::function<void(Block&)>& work) {
  Blocks blocks = this->blocks();
  while (Block* block = blocks.next()) work(*block);
}

void Round::each_absent_block(const std::function<void(Block&)>& work) {
  Blocks blocks = absent_blocks();
  while (Block* block = blocks.next()) work(*block);
}

double Round::share_of_clients() const {
  double clients = 0;
  for (std::int64_t k = 0; k < state_.services.partition.clients(); ++k) {
    clients += state_.weight_of(k, Weighting::Uniform);
  }
  return clients == 0 ? 0 : total_weight(Weighting::Uniform) / clients;
}

Coupling Round::coupling(std::span<const std::int64_t> ids) {
  state_.coupled = true;
  return {state_.services.topology.world(), ids};
}

std::vector<Tensor> Round::on_server(std::int64_t n,
                                     const std::function<Tensor(std::int64_t)>& work) {
  return fedhpc::on_server(state_.services.topology.world(), n, work);
}

double Round::noted(const std::string& metric) {
  state_.notes.require_added(metric);
  const auto one = [](double value) { return at::full({1, 1}, value, at::kDouble); };
  Topology& topology = state_.services.topology;
  // Logged as a mean is: the notes of passes that a resumed round skips come back later.
  const Tensor mean = state_.log.take(
      state_.log.open(nullptr), topology, Among::All,
      [&] {
        const Summation summation = state_.services.context.summation;
        return one(state_.notes.means({metric}, topology, summation).front());
      },
      [&] { return one(std::numeric_limits<double>::quiet_NaN()); });
  return mean.item<double>();
}

}  // namespace fedhpc
