#include "fedhpc/algorithms/hierfavg.hpp"

namespace fedhpc {

void HierFAVG::declare(OptionSet& options) {
  options.add("algorithm.edge_rounds", edge_rounds_, count_from(1),
              "edge aggregations per cloud aggregation (kappa_2)");
  options
      .add("algorithm.cohort", cohort_of_,
           Names<CohortOf>{{"round", CohortOf::Round}, {"edge_round", CohortOf::EdgeRound}},
           "when an edge's participants are drawn. round: once, all clients alike, and the cloud "
           "weighs edges by their participants; edge_round: anew for every edge aggregation with "
           "probabilities by samples, and the cloud weighs drawn edges by all their clients, as in "
           "the authors' program")
      .acts(either(unless("topology.participation", "1"), where("train.straggler_work", {"none"})));
  averaging_.declare(options);
  server_.declare(options);
}

void HierFAVG::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  edges_ = setup.initial_edges();
  seed_ = setup.seed();
}

void HierFAVG::round(Round& round) {
  EdgeTier& edges = round.edges();
  edges.download_(global_, edges_);  // w^l <- w
  const EdgeRows received = edges_.clone();
  const bool anew = cohort_of_ == CohortOf::EdgeRound;
  edges.rounds(edge_rounds_, [&] {
    if (anew) edges.draw_participants(seed_);
    EdgeMean update = edges.mean();
    round.each_block([&](Block& block) {
      const Rows start = block.download(edges_);  // [C, P]  w_i^l <- w^l
      const Rows trained = block.train(start);    // [C, P]  kappa_1 steps
      block.keep_buffers(trained);
      update.add(block.edges(), block.weights(averaging_.weighting),
                 block.upload(trained - start, *codec_));
    });
    edges_ += update.reduce();  // w^l <- sum_i |D_i^l| w_i^l / |D^l|
  });
  const std::vector<double> weights = anew ? edges.weights_of_clients(averaging_.weighting)
                                           : edges.weights_of_participants(averaging_.weighting);
  // w <- sum_l |D^l| w^l / |D|
  server_.step_(global_, edges.upload_mean(edges_ - received, weights, *codec_));
}

void HierFAVG::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.edges(edges_);
}

void HierFAVG::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.edges("edges", edges_);
  server_.visit_state(state);
}

}  // namespace fedhpc
