#include <fedhpc/plugin.hpp>

namespace {

using namespace fedhpc;

/// Federated averaging with momentum at the server.
///
/// Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
/// Classification", NeurIPS workshop on federated learning 2019, section 4.2 (FedAvgM).
///
///   paper     code                    meaning
///   w         global_                 global model
///   v         velocity_               what the server moves by
///   beta      algorithm.momentum      0: federated averaging
///   n_k       block.weights           training samples of client k
///
/// Deviation: statistics of batch normalisation have no gradient and take no momentum.
class ServerMomentum final : public Algorithm {
 public:
  void declare(OptionSet& options) override {
    averaging_.declare(options);
    options.add("algorithm.momentum", momentum_, from_below(0.0, 1.0),
                "share of the last round's move that the next one adds");
  }

  void initialise(const Setup& setup) override {
    global_ = setup.initial_model();
    velocity_ = 0 * global_;
    codec_ = averaging_.links.open(setup, global_);
  }

  void round(Round& round) override {
    Mean change = round.mean();
    round.each_block([&](Block& block) {
      const Rows start = block.download(global_);  // [C, P]  w_k <- w
      const Rows trained = block.train(start);     // [C, P]  ClientUpdate(k, w)
      block.keep_buffers(trained);
      change.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
    });
    scale_columns_(velocity_, momentum_, Tag::Trainable);
    scale_columns_(velocity_, 0, Tag::Buffer);
    velocity_ += change.reduce();  // v <- beta v + sum_k n_k/n (w_k - w)
    global_ += velocity_;          // w <- w + v
  }

  void evaluate(Evaluation& evaluation) override { evaluation.global(global_); }

  void visit_state(StateVisitor& state) override {
    state.rows("global", global_);
    state.rows("velocity", velocity_);
  }

 private:
  AveragingOptions averaging_;
  double momentum_ = 0.9;
  std::unique_ptr<Codec> codec_;  // of uploads
  Rows global_;                   // [1, P]
  Rows velocity_;                 // [1, P]
};

}  // namespace

FEDHPC_PLUGIN(plugin) {
  plugin.add_algorithm<ServerMomentum>("server_momentum",
                                       "FedAvg with server momentum (Hsu et al., 2019)");
}
