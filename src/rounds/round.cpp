#include "fedhpc/rounds/round.hpp"

#include <algorithm>
#include <iterator>

namespace fedhpc {

void Round::each_block(const std::function<void(Block&)>& work) {
  std::vector<std::int64_t> mine;
  for (const std::int64_t client : state_.cohort.clients) {
    if (state_.services.shard.holds(client)) mine.push_back(client);
  }
  each_block_of(std::move(mine), work);
}

void Round::each_absent_block(const std::function<void(Block&)>& work) {
  if (state_.services.absent_idle) return;
  std::vector<std::int64_t> absent;
  std::ranges::set_difference(state_.services.shard.clients(), state_.cohort.clients,
                              std::back_inserter(absent));
  each_block_of(std::move(absent), work);
}

void Round::each_block_of(std::vector<std::int64_t> mine, const std::function<void(Block&)>& work) {
  const Shard& shard = state_.services.shard;
  // Clients of like size side by side: long runs of equal batches, few idle rows in a block's last
  // steps.
  std::stable_sort(mine.begin(), mine.end(), [&](std::int64_t a, std::int64_t b) {
    return shard.train_count(a) > shard.train_count(b);
  });
  if (!state_.log.begin_pass(mine)) return;
  const auto width = static_cast<std::size_t>(state_.services.block_width);
  Communicator& world = state_.services.topology.world();
  const AtTask training(world.place(), Place::Task::Training);
  for (std::size_t first = 0; first < mine.size(); first += width) {
    if (state_.log.leaves((mine.size() - first + width - 1) / width)) return;
    const std::size_t count = std::min(width, mine.size() - first);
    Block block(state_, std::span(mine).subspan(first, count));
    world.place().client = mine[first];
    world.place().clients = static_cast<std::int32_t>(count);
    world.progress();
    work(block);
    state_.log.add_done(block.clients());
  }
  world.progress();
  state_.log.end_pass();
}

double Round::total_weight(Weighting weighting) const {
  double total = 0;
  for (const std::int64_t client : state_.cohort.clients)
    total += state_.weight_of(client, weighting);
  return total;
}

Coupling Round::coupling(std::span<const std::int64_t> ids) {
  return {state_.services.topology.world(), ids};
}

std::vector<Tensor> Round::on_server(std::int64_t n,
                                     const std::function<Tensor(std::int64_t)>& work) {
  return fedhpc::on_server(state_.services.topology.world(), n, work);
}

double Round::noted(const std::string& metric) {
  return state_.notes.means({metric}, state_.services.topology, state_.services.context.summation)
      .front();
}

}  // namespace fedhpc
