#include "fedhpc/algorithms/message_passing.hpp"

#include <algorithm>

namespace fedhpc {

void MessagePassing::declare(OptionSet& options) {
  options.add("algorithm.lambda", lambda_, at_least(0.0),
              "weight of the proximal term lambda/2 ||w - u_i||^2 of local training");
  links_.declare(options, LinkOptions::Payloads::Models);
}

void MessagePassing::initialise(const Setup& setup) {
  codec_ = links_.open(setup, setup.initial_model());
  clients_ = setup.store().clients();
  models_ = &setup.store().rows("personal", setup.initial_model());
}

void MessagePassing::round(Round& round, const Attention& attention) {
  const Rows clouds = cloud_models(round, attention);  // [N_r, P]
  round.each_block([&](Block& block) {
    const Rows cloud = block.download(of_clients(clouds, block.clients()));  // [C, P]  u_i
    // w_i ~ argmin F_i(w) + lambda/2 ||w - u_i||^2
    const Rows trained = block.train(cloud, {.penalty = {.mu = lambda_, .centre = cloud}});
    block.keep_buffers(trained);
    block.keep(*models_, block.upload_models(trained, *codec_));
  });
}

Rows MessagePassing::cloud_models(Round& round, const Attention& attention) const {
  const Rows models = models_->read(clients_);  // [N_r, P]  w_j
  const Coupling coupling = round.coupling(clients_);
  const Tensor weights = attention(coupling, models);  // [N, N]  xi
  // Nobody asks for the cloud models of clients that do not take part.
  const std::vector<std::int64_t>& drawn = round.cohort().clients;
  for (std::int64_t i = 0; i < coupling.count(); ++i) {
    const std::int64_t client = coupling.ids()[static_cast<std::size_t>(i)];
    if (!std::binary_search(drawn.begin(), drawn.end(), client)) weights[i].zero_();
  }
  return coupling.approach(weights, models);  // u_i = w_i + sum_j xi_ij (w_j - w_i)
}

Rows MessagePassing::of_clients(const Rows& rows, std::span<const std::int64_t> clients) const {
  std::vector<std::int64_t> places;
  for (const std::int64_t client : clients) {
    places.push_back(place_of(client, clients_));
  }
  return rows.at(places);
}

void MessagePassing::evaluate(Evaluation& evaluation) const {
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(models_->read(block.clients())));
  });
}

}  // namespace fedhpc
