#include "fedhpc/algorithms/feddecomp.hpp"

namespace fedhpc {

Traits FedDecomp::traits() const {
  return {.models = Models::Both,
          .factorisations = {.names = {"lora"},
                             .view = ConvView::Raw,
                             .passed = {.without = Tag::Trainable | Tag::Buffer}},
          .factor_draw = draw(),
          .averaged_uploads = 1};
}

void FedDecomp::declare(OptionSet& options) {
  options.add("algorithm.personal_passes", personal_passes_, count_from(0),
              "local trainings of a client's own low-rank part in a round; 0: there is none");
  options.add("algorithm.shared_passes", shared_passes_, count_from(1),
              "local trainings of the shared part that follow");
  options
      .add("algorithm.init_range", range_, above(0.0),
           "a of the uniform distribution U(-a, a) / sqrt(inputs) of A; B starts at 0")
      .acts(unless("algorithm.personal_passes", "0"));
  averaging_.declare(options);
  server_.declare(options);
}

void FedDecomp::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  own_parts_ = &setup.factor_map();
  own_ = &setup.store().rows("own", own_parts_->initial(global_, setup.seed(), draw()));
}

std::vector<NamedTensor> FedDecomp::drawn_in(std::int64_t round) const {
  if (round != 1) return {};
  return own_parts_->drawn(own_->initial());
}

void FedDecomp::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);          // [C, P]  sigma
    const Rows own = train_personal(block, received);       // [C, Q]  A_k, B_k
    const Rows start = received + own_parts_->expand(own);  // sigma + tau_k
    const Rows trained = train_shared(block, start);        // [C, P]  sigma_k + tau_k
    block.keep(*own_, own);
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting), block.upload(trained - start, *codec_));
  });
  server_.step_(global_, update.reduce());  // sigma <- sigma + sum_k p_k (sigma_k - sigma)
}

Rows FedDecomp::train_personal(Block& block, const Rows& shared) const {
  Rows own = own_->read(block.clients());
  for (std::int64_t pass = 0; pass < personal_passes_; ++pass) {
    own = block.train(own, {.pass = pass, .map = own_parts_, .base = shared, .goes_on = pass > 0});
  }
  return own;
}

Rows FedDecomp::train_shared(Block& block, const Rows& start) const {
  Rows model = start;
  for (std::int64_t pass = 0; pass < shared_passes_; ++pass) {
    model = block.train(model, {.pass = personal_passes_ + pass, .goes_on = pass > 0});
  }
  return model;
}

void FedDecomp::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(own_parts_->expand(own_->read(block.clients())) + global_));
  });
}

}  // namespace fedhpc
