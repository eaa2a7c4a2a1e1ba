#include "fedhpc/algorithms/fedrep.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

namespace {

constexpr Columns kHead{.with = Tag::Head};
constexpr Columns kBody{.without = Tag::Head};

}  // namespace

void FedRep::declare(OptionSet& options) {
  options.add("algorithm.head_passes", head_passes_, count_from(1),
              "local trainings of a client's head before the one of the body (tau_h)");
  options
      .add("algorithm.optimizer", optimizer_,
           Names<Optimizer>{{"pass", Optimizer::Pass}, {"round", Optimizer::Round}},
           "how long an optimizer lives: a pass; or (authors' program) a round, so that the next "
           "head pass goes on with its momentum")
      .acts(unless("algorithm.head_passes", "1"))
      .acts(either(unless("train.optimizer", "sgd"), unless("train.momentum", "0")));
  averaging_.declare(options);
  server_.declare(options);
}

void FedRep::initialise(const Setup& setup) {
  const Rows initial = setup.initial_model();
  layout_ = initial.layout;
  body_part_ = RowPart(layout_, kBody);
  head_part_ = RowPart(layout_, kHead);
  body_ = body_part_.of(initial);
  heads_ = &setup.store().rows("head", head_part_.of(initial));
  codec_ = averaging_.make_upload_codec();
  server_.start(body_);
}

void FedRep::round(Round& round) {
  Mean update = round.mean(body_part_.layout());
  round.each_block([&](Block& block) {
    const Rows received = block.download(body_);                   // [C, d - d_head]  phi^t
    Rows model = joined(received, heads_->read(block.clients()));  // [C, P]
    for (std::int64_t pass = 0; pass < head_passes_; ++pass) {     // h_i <- GRD(f_i(h, phi^t))
      const bool goes_on = optimizer_ == Optimizer::Round && pass > 0;
      model = block.train(model, {.pass = pass, .columns = kHead, .goes_on = goes_on});
    }
    block.keep(*heads_, head_part_.of(model));
    model = block.train(model,
                        {.pass = head_passes_, .columns = kBody});  // phi_i <- GRD(f_i(h_i, phi))
    block.keep_buffers(model);
    update.add(block.weights(averaging_.weighting),
               block.upload(body_part_.of(model) - received, *codec_));
  });
  server_.step_(body_, update.reduce());  // phi^{t+1} <- phi^t + sum_i p_i (phi_i - phi^t)
}

Rows FedRep::joined(const Rows& bodies, const Rows& heads) const {
  const Rows models{at::empty({heads.count(), layout_->size()}, heads.values.options()), layout_};
  body_part_.put_(models, bodies);
  head_part_.put_(models, heads);
  return models;
}

void FedRep::evaluate(Evaluation& evaluation) {
  evaluation.shared(body_);
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(joined(body_, heads_->read(block.clients()))));
  });
}

void FedRep::visit_state(StateVisitor& state) {
  state.rows("body", body_);
  server_.visit_state(state);
}

}  // namespace fedhpc
