#include "fedhpc/rounds/round_log.hpp"

#include <algorithm>
#include <set>

#include <ATen/ops/full.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

RoundLog::RoundLog(const LeavingRules* rules, std::unique_ptr<PartialRound> from, Rest rest)
    : rules_(rules), from_(std::move(from)), rest_(std::move(rest)), goes_on_(from_ != nullptr) {}

bool RoundLog::begin_pass(std::vector<std::int64_t>& clients) {
  if (left_) return false;
  if (from_ && passes_ < from_->passes) {
    ++passes_;
    return false;
  }
  go_on();
  const std::set<std::int64_t> done(done_.begin(), done_.end());
  std::erase_if(clients, [&](std::int64_t client) { return done.contains(client); });
  blocks_of_pass_ = 0;
  pass_begin_ = Clock::now();
  return true;
}

double RoundLog::seconds_to_come(std::size_t blocks) const {
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const double of_round = rules_->last_round_seconds - since(round_begin_);
  if (blocks_of_pass_ == 0) return std::max(of_round, 0.0);
  const double of_pass =
      since(pass_begin_) * static_cast<double>(blocks) / static_cast<double>(blocks_of_pass_);
  return std::max({of_round, of_pass, 0.0});
}

bool RoundLog::leaves(std::size_t left) {
  if (rules_ == nullptr || !rules_->asked()) return false;
  if (seconds_to_come(left) < rules_->grace_seconds) return false;
  leave();
  return true;
}

void RoundLog::add_done(std::span<const std::int64_t> clients) {
  if (rules_ == nullptr) return;
  done_.insert(done_.end(), clients.begin(), clients.end());
  ++blocks_of_pass_;
}

void RoundLog::end_pass() {
  ++passes_;
  done_.clear();
}

std::size_t RoundLog::open(const std::shared_ptr<SumContents>& contents) {
  // Of a round that nobody leaves nothing is kept longer than the mean itself.
  const bool kept = rules_ != nullptr || from_;
  means_.push_back({.result = {}, .open = kept ? contents : nullptr});
  return means_.size() - 1;
}

Tensor RoundLog::take(std::size_t place, Topology& topology, Among ranks,
                      const std::function<Tensor()>& compute,
                      const std::function<Tensor()>& blank) {
  PartialMean& mean = means_[place];
  if (from_ && place < from_->means.size() && from_->means[place].result.defined()) {
    const Tensor of_type = blank();
    mean = {.result = from_->means[place].result.to(of_type.options()), .open = nullptr};
    return mean.result.clone();
  }
  go_on();
  if (agree(topology, ranks)) return blank();
  const Tensor result = compute();
  if (rules_ != nullptr) mean = {.result = result.clone(), .open = nullptr};
  return result;
}

bool RoundLog::is_left(Topology& topology) {
  go_on();
  return agree(topology, Among::All);
}

bool RoundLog::agree(Topology& topology, Among ranks) {
  if (rules_ == nullptr) return false;
  Tensor anybody = at::full({1}, left_ ? 1 : 0, at::kLong);
  topology.max_(ranks, anybody);
  if (!left_ && anybody.item<std::int64_t>() > 0) leave();
  return left_;
}

void RoundLog::leave() {
  left_ = true;
  partial_ = {.passes = passes_, .done = done_};
  for (const PartialMean& mean : means_) {
    partial_.means.push_back(
        {.result = mean.result, .open = mean.open ? mean.open->copy() : nullptr});
  }
  rest_.save(partial_);
}

void RoundLog::go_on() {
  if (!from_) return;
  const std::unique_ptr<PartialRound> from = std::move(from_);
  require(passes_ == from->passes && means_.size() >= from->means.size(),
          "a round that goes on does what it did before");
  done_ = from->done;
  for (std::size_t m = 0; m < from->means.size(); ++m) {
    if (means_[m].open && from->means[m].open) means_[m].open->assign(*from->means[m].open);
  }
  rest_.restore(*from);
}

}  // namespace fedhpc
