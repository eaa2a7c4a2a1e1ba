#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// Hierarchical federated averaging: clients average at their edge, edges now and then at the
/// cloud.
///
/// Liu, Zhang, Song, Letaief: "Client-Edge-Cloud Hierarchical Federated Learning", ICC 2020,
/// Algorithm 1.
///
///   w_i^l <- kappa_1 local steps from w^l                clients
///   w^l   <- sum_i |D_i^l| w_i^l / |D^l|                 edges, kappa_2 times from w^l = w
///   w     <- sum_l |D^l| w^l / |D|                       cloud
///
///   paper     code                    meaning
///   w         global_                 the cloud's model
///   w^l       edges_                  model of edge l
///   kappa_1   train.local_steps       local updates per edge aggregation (or train.local_epochs)
///   kappa_2   algorithm.edge_rounds   edge aggregations per cloud aggregation; 1, with all
///                                     clients in every round: FedAvg
///   |D_i^l|   block.weights           training samples of client i
///   L         topology.edges          edges; 1, with all clients in every round: FedAvg with
///                                     kappa_2 times as many rounds
///   eta       train.lr                0: the models stay as they are
///   (cohort)  algorithm.cohort        round: drawn once; edge_round: anew for every edge round
///
/// One global round is kappa_2 edge rounds and one cloud aggregation, and draws its participants
/// once. The authors' program draws them for every edge round, by their samples, and weighs edges
/// by all their clients (cohort = edge_round; configs/authors/hierfavg.ini). edge_accuracy is that
/// of the edges' models before the cloud averages them; an edge that was not drawn keeps the model
/// it had.
///
/// Deviation: servers average differences to the model they sent instead of models. Both give the
/// same mean; differences are small, so rounding is too.
///
/// The batches of an edge round are those of the pass of its number.
class HierFAVG final : public Algorithm {
 public:
  Traits traits() const override {
    const bool drawn_again = cohort_of_ == CohortOf::EdgeRound;
    return {.tiers = Tiers::ClientEdgeCloud,
            .cohorts_in_round = drawn_again ? edge_rounds_ : 1,
            .trainings_in_round = edge_rounds_};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class CohortOf { Round, EdgeRound };

  std::int64_t edge_rounds_ = 4;
  CohortOf cohort_of_ = CohortOf::Round;
  AveragingOptions averaging_;
  ServerOptimizer server_;  // the cloud's
  std::uint64_t seed_ = 0;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]
  EdgeRows edges_;                // [E of this rank, P]
};

}  // namespace fedhpc
