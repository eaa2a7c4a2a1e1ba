#include "fedhpc/algorithms/fedavg_ft.hpp"

namespace fedhpc {

namespace {

constexpr const char* kReceptionAccuracy = "reception_accuracy";

}  // namespace

void FedAvgFT::declare(OptionSet& options) {
  options.add("algorithm.start", start_,
              Names<Start>{{"fine_tuned", Start::FineTuned}, {"received", Start::Received}},
              "where a client's local training starts: at the model it has fine-tuned, or at the "
              "one it has received");
  averaging_.declare(options);
  server_.declare(options);
}

void FedAvgFT::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kReceptionAccuracy, "fraction",
        "mean over participants of the accuracy of the fine-tuned model on own test samples, "
        "before local training"}});
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
}

void FedAvgFT::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);          // [C, P]  w^t
    const Rows tuned = block.train(received, {.pass = 0});  // [C, P]  u_k
    block.note_received(kReceptionAccuracy, block.evaluate(tuned));
    const Rows& start = start_ == Start::FineTuned ? tuned : received;
    const Rows trained = block.train(start, {.pass = 1, .penalty = penalty(received)});  // w_k
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - received, *codec_));
  });
  server_.step_(global_, update.reduce());  // w^{t+1} <- w^t + sum_k p_k (w_k - w^t)
}

void FedAvgFT::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block([&](EvaluationBlock& block) { block.evaluate(block.adapt(global_)); });
}

}  // namespace fedhpc
