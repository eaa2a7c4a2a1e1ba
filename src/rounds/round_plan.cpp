#include "fedhpc/rounds/round_plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace fedhpc {

namespace {

constexpr double kGain = 0.98;  // a plan that saves less moves nobody
/// Tried as what a rank may have before clients leave it, in units of what no plan goes below.
constexpr std::array<double, 3> kLimits{1, 1.03, 1.1};

struct Participant {
  std::int64_t client;
  int home;
  double work;
};

/// Plans the round of ranks that exchange clients with each other and with nobody else.
class GroupPlan {
 public:
  GroupPlan(std::vector<Participant> participants, const Range& ranks, const RoundCosts& costs)
      : participants_(std::move(participants)), ranks_(ranks), costs_(costs) {}

  void add_to(std::vector<Move>& moves) {
    std::vector<double> at_home(static_cast<std::size_t>(ranks_.size()), 0);
    double largest = 0;
    for (const Participant& one : participants_) {
      at_home[one.home - ranks_.first] += one.work;
      largest = std::max(largest, one.work);
    }
    const double all = std::accumulate(at_home.begin(), at_home.end(), 0.0);
    const double least = std::max(largest, all / static_cast<double>(ranks_.size()));
    double longest = *std::ranges::max_element(at_home);
    if (kGain * longest <= least) return;
    std::ranges::stable_sort(participants_, std::greater<>(), &Participant::work);
    longest *= kGain;
    std::vector<Move> best;
    for (const double limit : kLimits) {
      std::vector<Move> tried;
      const double of_tried = plan(limit * least, tried);
      if (of_tried >= longest) continue;
      longest = of_tried;
      best = std::move(tried);
    }
    moves.insert(moves.end(), best.begin(), best.end());
  }

 private:
  /// Returns the work of the rank with the most.
  double plan(double limit, std::vector<Move>& moves) const {
    std::vector<double> work(static_cast<std::size_t>(ranks_.size()), 0);
    std::vector<const Participant*> left;
    for (const Participant& one : participants_) {
      double& home = work[one.home - ranks_.first];
      if (home + one.work <= limit * (1 + 1e-12)) {
        home += one.work;
      } else {
        left.push_back(&one);
      }
    }
    for (const Participant* one : left) {
      Move best{one->client, one->home, one->home};
      double cost = 0;
      double lowest = work[one->home - ranks_.first];
      for (std::int64_t rank = ranks_.first; rank < ranks_.last; ++rank) {
        const double there = work[rank - ranks_.first];
        if (rank == one->home || there >= lowest) continue;
        const Move move{one->client, one->home, static_cast<int>(rank)};
        const double of_move = costs_.of_moving(move);
        if (there + of_move >= lowest) continue;
        lowest = there + of_move;
        cost = of_move;
        best = move;
      }
      work[best.to - ranks_.first] += one->work;
      if (best.to == one->home) continue;
      work[best.to - ranks_.first] += cost;
      work[one->home - ranks_.first] += cost;
      moves.push_back(best);
    }
    return *std::ranges::max_element(work);
  }

  std::vector<Participant> participants_;
  Range ranks_;
  const RoundCosts& costs_;
};

}  // namespace

std::vector<Move> plan_round(std::span<const std::int64_t> cohort, const Placement& placement,
                             MovingRange range, const RoundCosts& costs) {
  const bool within = range == MovingRange::WithinEdges && placement.edges() > 0;
  std::map<std::int64_t, std::vector<Participant>> groups;  // by edge
  for (const std::int64_t client : cohort) {
    groups[within ? placement.edge_of(client) : 0].push_back(
        {client, placement.home_of(client), costs.work(client)});
  }
  std::vector<Move> moves;
  for (auto& [edge, participants] : groups) {
    const Range ranks = within ? placement.ranks_of_edge(edge) : Range{0, placement.ranks()};
    if (ranks.size() > 1) GroupPlan(std::move(participants), ranks, costs).add_to(moves);
  }
  std::ranges::sort(moves, {}, &Move::client);
  return moves;
}

std::vector<double> work_of_ranks(std::span<const std::int64_t> cohort, const Placement& placement,
                                  std::span<const Move> moves, const RoundCosts& costs) {
  std::vector<double> work(static_cast<std::size_t>(placement.ranks()), 0);
  for (const std::int64_t client : cohort) work[placement.home_of(client)] += costs.work(client);
  for (const Move& move : moves) {
    const double of_client = costs.work(move.client);
    const double of_move = costs.of_moving(move);
    work[move.from] += of_move - of_client;
    work[move.to] += of_move + of_client;
  }
  return work;
}

double balance_of(std::span<const double> work) {
  const double most = *std::ranges::max_element(work);
  if (most <= 0) return 1;
  return std::accumulate(work.begin(), work.end(), 0.0) / (static_cast<double>(work.size()) * most);
}

}  // namespace fedhpc
