#include "fedhpc/algorithms/fedbabu.hpp"

namespace fedhpc {

void FedBABU::declare(OptionSet& options) {
  options.add(
      "algorithm.fine_tune", fine_tune_,
      Names<FineTune>{{"all", FineTune::All}, {"head", FineTune::Head}, {"body", FineTune::Body}},
      "what a client tunes of the global model to its own before it is evaluated");
  averaging_.declare(options);
  server_.declare(options);
}

void FedBABU::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  body_ = RowPart(global_.layout, kBody);
  const Rows body = body_.of(global_);
  codec_ = averaging_.links.open(setup, body);
  server_.start(body);
}

void FedBABU::round(Round& round) {
  Rows body = body_.of(global_);  // [1, d - d_head]
  Mean update = round.mean(body.layout);
  round.each_block([&](Block& block) {
    const Rows received = block.download(body);  // [C, d - d_head]
    const Rows start = global_.replicate(block.count());
    body_.put_(start, received);
    const Rows trained = block.train(start, {.columns = kBody});  // the head is never updated
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting),
               block.upload(body_.of(trained) - received, *codec_));
  });
  server_.step_(body, update.reduce());
  body_.put_(global_, body);
}

void FedBABU::evaluate(Evaluation& evaluation) {
  Columns tuned;
  if (fine_tune_ == FineTune::Head) tuned = kHead;
  if (fine_tune_ == FineTune::Body) tuned = kBody;
  evaluation.global(global_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(block.adapt(global_, tuned)); });
}

}  // namespace fedhpc
