#include "reference/hierfavg_reference.hpp"

namespace fedhpc::reference {

HierarchicalOutcome hierfavg(const Problem& problem, std::int64_t kappa_2) {
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
        for (const std::int64_t k : drawn.clients) {
          const Trained trained = train(problem, k, t, /*pass=*/r, w_l, /*mu=*/0);
          edge.add(trained.parameters, weight_of(problem, k));
          loss.add(trained);
        }
        w_l = edge.mean_or(w_l);
        edge_weight = edge.weight();
      }
      cloud.add(w_l, edge_weight);
    }
    w = cloud.mean_or(w);
    result.outcome.train_loss.push_back(loss.mean());
  }
  result.outcome.global = flatten(w);
  result.edges = w_edge;
  return result;
}

}  // namespace fedhpc::reference
