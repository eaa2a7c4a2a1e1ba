#include "fedhpc/algorithms/fedavg.hpp"

#include <ATen/ops/where.h>

namespace fedhpc {

void FedAvg::declare(OptionSet& options) {
  averaging_.declare(options);
  server_.declare(options);
  options.add("algorithm.transmit_fraction", transmit_fraction_, above_up_to(0.0, 1.0),
              "share of the trainable columns that travel in each direction, chosen at random");
  options
      .add("algorithm.unsent", unsent_,
           Names<Unsent>{
               {"keep", Unsent::Keep}, {"zero", Unsent::Zero}, {"rescale", Unsent::Rescale}},
           "what stands for columns that did not travel: what the receiver has, 0, or 0 with "
           "the others scaled up")
      .acts(unless("algorithm.transmit_fraction", "1"));
  // Of single columns the statistics are among those that travel.
  options.acts("train.buffers", where("algorithm.transmit_fraction", {"1"}));
  // Single columns travel as they are, and what they become at the server is no mean update.
  for (const char* key :
       {"algorithm.codec", "algorithm.k", "algorithm.codec_fraction", "algorithm.codec_levels",
        "algorithm.codec_rank", "algorithm.downlink_codec", "algorithm.error_feedback",
        "server.optimizer", "server.lr", "server.momentum", "server.beta1", "server.beta2",
        "server.eps"}) {
    options.acts(key, where("algorithm.transmit_fraction", {"1"}));
  }
}

void FedAvg::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  if (!is_sparse()) return;
  columns_.emplace(setup.seed(), transmit_fraction_, global_.layout);
  if (unsent_ == Unsent::Keep) last_ = &setup.store().rows("last", global_);
}

void FedAvg::round(Round& round) {
  if (is_sparse()) {
    unsent_ == Unsent::Keep ? sparse_round(round) : sparse_round_with_zeros(round);
    return;
  }
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = block.download(global_);  // [C, P]  w_k <- w_t
    const Rows trained = block.train(start);     // [C, P]  ClientUpdate(k, w_t)
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  server_.step_(global_, update.reduce());  // w_{t+1} <- w_t + sum_k n_k/n (w_k - w_t)
}

void FedAvg::sparse_round(Round& round) {
  ColumnMean mean = round.column_mean();
  round.each_block([&](Block& block) {
    const Tensor received = block.send(Direction::Down, *columns_);  // [C, P]
    const Rows last = last_->read(block.clients());                  // [C, P]
    // w_k <- w_t where it is received, else as k has left it
    const Rows start{at::where(received, global_.values, last.values), global_.layout};
    const Rows trained = block.train(start);
    last_->write(block.clients(), trained);
    mean.add(block.weights(averaging_.weighting), trained, block.send(Direction::Up, *columns_));
  });
  global_ = mean.reduce(global_);
}

void FedAvg::sparse_round_with_zeros(Round& round) {
  Mean mean = round.mean();
  const double scale = unsent_ == Unsent::Rescale ? columns_->inverse_fraction() : 1;
  const auto arriving = [&](const Rows& rows, const Tensor& sent) {
    const Rows arrives{rows.values.mul(sent), rows.layout};
    scale_columns_(arrives, scale, Tag::Trainable);
    return arrives;
  };
  round.each_block([&](Block& block) {
    const Rows start = arriving(global_, block.send(Direction::Down, *columns_));
    const Rows trained = block.train(start);
    const Rows uploaded = arriving(trained, block.send(Direction::Up, *columns_));
    // Not of differences to w_t: what nobody has sent is to be 0, and not what rounding leaves of
    // it.
    mean.add(block.weights(averaging_.weighting), uploaded);
  });
  global_ = mean.reduce(/*otherwise=*/global_);  // w_{t+1} <- sum_k n_k/n of what has arrived
}

void FedAvg::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

}  // namespace fedhpc
