#include "fedhpc/algorithms/part_averaging.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

void PartAveraging::declare(OptionSet& options) {
  averaging_.declare(options);
  server_.declare(options);
}

void PartAveraging::initialise(const Setup& setup) {
  const Rows initial = setup.initial_model();
  layout_ = initial.layout;
  own_part_ = own_part(layout_);
  shared_part_ = own_part_.rest();
  shared_ = shared_part_.of(initial);
  const Rows own = own_part_.of(initial);
  if (own.layout->size() > 0) own_ = &setup.store().rows("own", own);
  codec_ = averaging_.links.open(setup, shared_);
  server_.start(shared_);
}

void PartAveraging::round(Round& round) {
  Mean update = round.mean(shared_part_.layout());
  round.each_block([&](Block& block) {
    const Rows received = block.download(shared_);  // [C, S]  s^t
    const Rows trained = train(block, joined(received, block.clients()));
    if (own_ != nullptr) block.keep(*own_, own_part_.of(trained));  // o_i
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting),
               block.upload(shared_part_.of(trained) - received, *codec_));
  });
  server_.step_(shared_, update.reduce());  // s^{t+1} <- s^t + sum_i p_i (s_i - s^t)
}

Rows PartAveraging::joined(const Rows& shared, std::span<const std::int64_t> clients) const {
  const auto count = static_cast<std::int64_t>(clients.size());
  const Rows models{at::empty({count, layout_->size()}, shared.values.options()), layout_};
  shared_part_.put_(models, shared);
  if (own_ != nullptr) own_part_.put_(models, own_->read(clients));
  return models;
}

void PartAveraging::evaluate(Evaluation& evaluation) {
  evaluation.shared(shared_);
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(joined(shared_, block.clients())));
  });
}

}  // namespace fedhpc
