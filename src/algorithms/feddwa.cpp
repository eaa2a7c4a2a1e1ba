#include "fedhpc/algorithms/feddwa.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/sent_rows.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kGuides = 1;  // the channel of guidance models

}  // namespace

void FedDWA::declare(OptionSet& options) {
  options.add("algorithm.top_k", top_k_, count_from(1),
              "models that are mixed into a client's own: those nearest to its guidance model");
  links_.declare(options, LinkOptions::Payloads::Models);
}

void FedDWA::initialise(const Setup& setup) {
  codec_ = links_.open(setup, setup.initial_model());
  guide_codec_ = links_.open(setup, setup.initial_model(), kGuides, LinkOptions::Ways::Up);
  clouds_ = &setup.store().rows("cloud", setup.initial_model());
}

void FedDWA::round(Round& round) {
  SentRows models_sent;  // w_j
  SentRows guides_sent;  // w'_k
  round.each_block([&](Block& block) {
    const Rows received = block.download(clouds_->read(block.clients()));  // [C, P]  u_k
    const Rows trained = block.train(received, {.pass = 0});               // [C, P]  w_k
    const Rows guide = block.train(trained, {.pass = 1});                  // [C, P]  w'_k
    block.keep_buffers(trained);
    const std::span<const double> weights = block.weights(Weighting::Uniform);
    models_sent.add(block, weights, block.upload_models(trained, *codec_));
    guides_sent.add(block, weights, block.upload_models(guide, *guide_codec_));
  });
  const std::vector<std::int64_t>& clients = models_sent.clients();
  const Coupling server = round.coupling(clients);
  const Rows models = models_sent.take(clouds_->initial());
  const Rows guides = guides_sent.take(clouds_->initial());
  const Tensor weights = weights_of(  // [S, S]  p
      server.squared_distances(guides, models, clouds_->layout()->ranges(Tag::Trainable)), top_k_);
  clouds_->write(clients, server.approach(weights, models));  // u_k <- sum_j p_kj w_j
}

Tensor FedDWA::weights_of(const Tensor& squared_distances, std::int64_t top_k) {
  constexpr double kNearest = 1e-30;  // of a squared distance
  // A model that is not finite is near nobody.
  const Tensor near = squared_distances.clamp_min(kNearest).reciprocal().nan_to_num_(0);
  const Tensor weights = at::zeros_like(near);
  const std::int64_t count = near.size(0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) {
    const auto* of_k = near[k].const_data_ptr<double>();
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t i, std::int64_t j) { return of_k[i] > of_k[j]; });
    double sum = 0;
    for (std::int64_t n = 0; n < std::min(top_k, count); ++n) {
      sum += of_k[order[static_cast<std::size_t>(n)]];
    }
    if (sum == 0) {
      weights[k][k].fill_(1);
      continue;
    }
    for (std::int64_t n = 0; n < std::min(top_k, count); ++n) {
      const std::int64_t j = order[static_cast<std::size_t>(n)];
      weights[k][j].fill_(of_k[j] / sum);
    }
  }
  return weights;
}

void FedDWA::evaluate(Evaluation& evaluation) {
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(clouds_->read(block.clients())));
  });
}

}  // namespace fedhpc
