#include "fedhpc/algorithms/fedcomloc.hpp"

#include <vector>

#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/local_gradient.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

namespace {

constexpr const char* kLocalSteps = "local_steps";

}  // namespace

void FedComLoc::declare(OptionSet& options) {
  constexpr double kLeast = 1e-6;  // a million local steps
  options.add("algorithm.probability", probability_, between(kLeast, 1.0),
              "p: of a local step to be the last of its round; rounds have 1 / p steps on average, "
              "the same number for all clients");
  for (const char* key : {"train.local_steps", "train.local_epochs"}) {
    options.acts(key, unless("algorithm.name", "fedcomloc"));
  }
  options
      .add("algorithm.compress", where_,
           Names<Compress>{
               {"com", Compress::Com}, {"local", Compress::Local}, {"global", Compress::Global}},
           "what algorithm.codec compresses: the models that clients send (com), those that "
           "gradients are taken at (local), or the model that the server sends (global)")
      .acts(unless("algorithm.codec", "dense"));
  averaging_.declare(options, LinkOptions::Payloads::ChangesUp,
                     "what the models that algorithm.compress names become (fedhpc list codecs)");
  require_plain_gradients(
      options, "fedcomloc",
      "which moves h_i by p / train.lr times what a round has changed: that is right");
  options.add_check([this](const OptionSet& given) {
    if (where_ != Compress::Local || averaging_.links.uplink.name == "dense") return;
    const bool wide = given.contains("run.dtype") && given.entry("run.dtype").print() == "float64";
    if (!averaging_.links.uplink.make()->lossless(wide ? at::kDouble : at::kFloat)) return;
    given.refuse("algorithm.codec",
                 "algorithm.compress = local, which sends nothing compressed: gradients would be "
                 "taken at the same model; use a codec that loses something");
  });
}

void FedComLoc::initialise(const Setup& setup) {
  setup.add_metrics({{kLocalSteps, "1", "local steps of the round, drawn with mean 1 / p"}});
  global_ = setup.initial_model();
  seed_ = setup.seed();
  lr_ = setup.training().lr;
  codec_ = averaging_.links.upload_codec();
  training_ = ShiftedTraining(setup.training().step_rule(), global_, /*mu=*/0);
  const Rows part = training_.part().of(global_);
  moved_ = {at::zeros_like(part.values), part.layout};
  controls_ = &setup.store().rows("control", moved_.clone());
  last_round_ = &setup.store().scalars("last_round", 0);
}

void FedComLoc::round(Round& round) {
  const RowPart& part = training_.part();
  const double rate = probability_ / (lr_ * round.lr_factor());  // p / gamma
  const std::int64_t steps = draw_steps(round.number());
  round.note(kLocalSteps, static_cast<double>(steps));
  const Codec* of_training = where_ == Compress::Local ? codec_.get() : nullptr;
  const Codec& of_uploads = where_ == Compress::Com ? *codec_ : dense_codec();
  Mean mean = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = receive(block);                  // [C, P]  x
    const Rows own = controls_->read(block.clients());  // [C, Q]  h_i
    const Rows trained = training_.train(block, start, -1 * own, steps, of_training);
    block.keep_buffers(trained);
    const Rows sent = block.upload_models(trained, of_uploads);  // [C, P]  y_i
    block.keep(*controls_, own + rate * (part.of(start) - part.of(sent)));
    for (const std::int64_t client : block.clients()) {
      if (block.trains(client)) last_round_->write(client, static_cast<double>(round.number()));
    }
    mean.add(block.weights(averaging_.weighting), sent);
  });
  round.each_absent_block([&](Block& block) {
    const std::vector<std::int64_t> waiting = waiting_of(block);
    Block those = block.only(waiting);
    if (!waiting.empty()) receive(those);
  });
  const Rows before = part.of(global_);
  global_ = mean.reduce(global_);  // x+ <- mean_S y_i
  if (where_ == Compress::Global) {
    const Received message = round.for_everybody(global_, *codec_);
    global_ = message.rows;
    payload_bytes_ = message.bytes.front();
  }
  moved_ = rate * (part.of(global_) - before);
}

std::int64_t FedComLoc::draw_steps(std::int64_t round) const {
  Draws coin({.seed = seed_,
              .purpose = Purpose::Cohort,
              .pass = 2,
              .round = static_cast<std::uint64_t>(round)});
  std::int64_t steps = 1;
  while (coin.uniform() >= probability_) ++steps;
  return steps;
}

Rows FedComLoc::receive(Block& block) {
  // The initial model is not compressed.
  const Rows received = payload_bytes_ == 0 ? block.download(global_)
                                            : block.download(Received{global_, {payload_bytes_}});
  const std::vector<std::int64_t> waiting = waiting_of(block);
  if (!waiting.empty()) {  // h_i <- h_i + p / gamma (x+ - x)
    controls_->write(waiting, controls_->read(waiting) + moved_.replicate(std::ssize(waiting)));
  }
  return received;
}

std::vector<std::int64_t> FedComLoc::waiting_of(const Block& block) const {
  std::vector<std::int64_t> waiting;
  const auto last = static_cast<double>(block.round() - 1);
  for (const std::int64_t client : block.clients()) {
    if (last > 0 && last_round_->read(client) == last) waiting.push_back(client);
  }
  return waiting;
}

void FedComLoc::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

void FedComLoc::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.rows("moved", moved_);
  state.integer("payload_bytes", payload_bytes_);
}

}  // namespace fedhpc
