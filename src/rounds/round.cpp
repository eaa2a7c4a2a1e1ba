#include "fedhpc/rounds/round.hpp"

#include <algorithm>

namespace fedhpc {

Round::Round(RoundServices& services, std::int64_t number, std::vector<std::int64_t> cohort)
    : services_(services), number_(number), cohort_(std::move(cohort)) {}

Mean Round::mean() {
  return {services_.comm, services_.model.layout(), services_.type, services_.aggregate_watch};
}

void Round::each_block(const std::function<void(Block&)>& work) {
  const Shard& shard = services_.shard;
  std::vector<std::int64_t> mine;
  for (const std::int64_t client : cohort_) {
    if (shard.holds(client)) mine.push_back(client);
  }
  // Clients of like size side by side: long runs of equal batches, few idle rows in a block's last
  // steps.
  std::stable_sort(mine.begin(), mine.end(), [&](std::int64_t a, std::int64_t b) {
    return shard.train_count(a) > shard.train_count(b);
  });
  const auto width = static_cast<std::size_t>(services_.block_width);
  for (std::size_t first = 0; first < mine.size(); first += width) {
    const std::size_t count = std::min(width, mine.size() - first);
    Block block(*this, std::span(mine).subspan(first, count));
    work(block);
  }
}

Rows Block::download(const Rows& model) {
  const Timed timed(round_.services_.aggregate_watch);
  Rows rows = model.replicate(count());
  round_.services_.ledger.book(Link::ClientCloud, Direction::Down,
                               static_cast<std::int64_t>(rows.values.nbytes()));
  return rows;
}

Rows Block::train(const Rows& start, const LocalWork& work) {
  const Timed timed(round_.services_.train_watch);
  Rows rows = start.clone();
  round_.statistics_ += round_.services_.trainer.train_(rows, clients_, round_.number_, work);
  return rows;
}

Rows Block::upload(const Rows& rows) {
  round_.services_.ledger.book(Link::ClientCloud, Direction::Up,
                               static_cast<std::int64_t>(rows.values.nbytes()));
  return rows;
}

std::span<const double> Block::weights(Weighting weighting) {
  weights_.clear();
  for (const std::int64_t client : clients_) {
    const auto samples = static_cast<double>(round_.services_.shard.train_count(client));
    weights_.push_back(weighting == Weighting::Samples ? samples : (samples > 0 ? 1.0 : 0.0));
  }
  return weights_;
}

}  // namespace fedhpc
