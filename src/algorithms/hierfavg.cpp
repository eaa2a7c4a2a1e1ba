#include "fedhpc/algorithms/hierfavg.hpp"

namespace fedhpc {

void HierFAVG::declare(OptionSet& options) {
  options.add("algorithm.edge_rounds", edge_rounds_, count_from(1),
              "edge aggregations per cloud aggregation (kappa_2)");
  averaging_.declare(options);
}

void HierFAVG::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.make_upload_codec();
  edges_ = setup.initial_edges();
}

void HierFAVG::round(Round& round) {
  round.to_edges_(global_, edges_);  // w^l <- w
  round.edge_rounds(edge_rounds_, [&] {
    EdgeMean update = round.edge_mean();
    round.each_block([&](Block& block) {
      const Rows start = block.download(edges_);  // [C, P]  w_i^l <- w^l
      const Rows trained = block.train(start);    // [C, P]  kappa_1 steps
      update.add(block.edges(), block.weights(averaging_.weighting),
                 block.upload(trained - start, *codec_));
    });
    edges_ += update.reduce();  // w^l <- sum_i |D_i^l| w_i^l / |D^l|
  });
  global_ += round.to_cloud(edges_ - global_, round.weights_of_participants(averaging_.weighting),
                            *codec_);  // w <- sum_l |D^l| w^l / |D|
}

void HierFAVG::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.edges(edges_);
}

void HierFAVG::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.edges("edges", edges_);
}

}  // namespace fedhpc
