#include "reference/hierfavg_reference.hpp"

#include <algorithm>
#include <functional>

namespace fedhpc::reference {

namespace {

using Participants = std::function<std::vector<std::int64_t>(const EdgeCohort& drawn,
                                                             std::int64_t t, std::int64_t r)>;
using EdgeWeight = std::function<double(const EdgeCohort& drawn, double of_participants)>;

HierarchicalOutcome rounds(const Problem& problem, std::int64_t kappa_2,
                           const Participants& participants, const EdgeWeight& weight_of_edge) {
  HierarchicalOutcome result;
  Parameters w = problem.initial;
  std::vector<Parameters> w_edge(static_cast<std::size_t>(problem.edges), w);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average cloud;
    RoundLoss loss;
    for (const EdgeCohort& drawn : edge_cohorts(problem, t)) {
      Parameters& w_l = w_edge[static_cast<std::size_t>(drawn.edge)];
      w_l = w;
      double edge_weight = 0;
      for (std::int64_t r = 0; r < kappa_2; ++r) {
        Average edge;
        for (const std::int64_t k : participants(drawn, t, r)) {
          const Trained trained = train(problem, k, t, /*pass=*/r, w_l, /*mu=*/0);
          edge.add(trained.parameters, weight_of(problem, k));
          loss.add(trained);
        }
        w_l = edge.mean_or(w_l);
        edge_weight = edge.weight();
      }
      cloud.add(w_l, weight_of_edge(drawn, edge_weight));
    }
    w = cloud.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  result.edges = w_edge;
  return result;
}

std::vector<std::int64_t> members_of(const Problem& problem, std::int64_t edge) {
  const auto n = static_cast<std::int64_t>(problem.clients.size());
  std::vector<std::int64_t> members;
  for (std::int64_t c = 0; c < n; ++c) {
    if (c * problem.edges / n == edge) members.push_back(c);
  }
  return members;
}

double samples_of(const Problem& problem, std::int64_t k) {
  return static_cast<double>(problem.clients[static_cast<std::size_t>(k)].labels.size(0));
}

/// `count` of the edge's clients, each next one with a probability by samples among those left.
std::vector<std::int64_t> draw_by_samples(const Problem& problem, std::int64_t edge,
                                          std::size_t count, std::int64_t t, std::int64_t r) {
  Draws draws({.seed = problem.seed,
               .purpose = Purpose::Cohort,
               .pass = static_cast<std::uint64_t>(2 + r),
               .client = static_cast<std::uint64_t>(edge),
               .round = static_cast<std::uint64_t>(t)});
  std::vector<std::int64_t> left = members_of(problem, edge);
  std::erase_if(left, [&](std::int64_t k) { return samples_of(problem, k) == 0; });
  std::vector<std::int64_t> chosen;
  while (chosen.size() < count && !left.empty()) {
    double all = 0;
    for (const std::int64_t k : left) all += samples_of(problem, k);
    double rest = static_cast<double>(draws.raw() >> 11) * 0x1p-53 * all;
    auto next = left.begin();
    while (rest >= samples_of(problem, *next)) rest -= samples_of(problem, *next++);
    chosen.push_back(*next);
    left.erase(next);
  }
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace

HierarchicalOutcome hierfavg(const Problem& problem, std::int64_t kappa_2) {
  return rounds(
      problem, kappa_2,
      [](const EdgeCohort& drawn, std::int64_t, std::int64_t) { return drawn.clients; },
      [](const EdgeCohort&, double of_participants) { return of_participants; });
}

HierarchicalOutcome hierfavg_of_the_authors(const Problem& problem, std::int64_t kappa_2) {
  return rounds(
      problem, kappa_2,
      [&](const EdgeCohort& drawn, std::int64_t t, std::int64_t r) {
        return without_absent(problem, draw_by_samples(problem, drawn.edge, drawn.drawn, t, r), t);
      },
      [&](const EdgeCohort& drawn, double) {
        double sum = 0;
        for (const std::int64_t k : members_of(problem, drawn.edge)) sum += weight_of(problem, k);
        return sum;
      });
}

}  // namespace fedhpc::reference
