#include "fedhpc/algorithms/pfedgraph.hpp"

#include <limits>

#include "fedhpc/algorithms/sent_rows.hpp"
#include "fedhpc/math/simplex.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kOwnWeight = "own_weight";
constexpr const char* kCollaborators = "collaborators";
constexpr const char* kReceptionAccuracy = "reception_accuracy";

}  // namespace

void PFedGraph::declare(OptionSet& options) {
  options.add(
      "algorithm.alpha", alpha_, above(0.0),
      "how near the weights of models in a mixture stay to the clients' sizes; large: those "
      "of FedAvg, near 0: the most alike models alone");
  options.add("algorithm.lambda", lambda_, {},
              "weight of the cosine with the received model that local training adds to; below 0 "
              "(authors' program) it takes from it");
  options.add("algorithm.alike", alike_, between(-1.0, 1.0),
              "models whose cosine is above this count as alike as can be (authors' program: 0.9)");
  options.add("algorithm.evaluate", evaluated_,
              Names<Evaluated>{{"trained", Evaluated::Trained}, {"received", Evaluated::Received}},
              "a client's own model: as it was trained last, or as it would be received next");
  averaging_.declare(options, LinkOptions::Payloads::Models);
}

void PFedGraph::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kOwnWeight, "1",
        "mean over participants of the weight of their own model in what they get"},
       {kCollaborators, "clients", "mean over participants of how many others' models it mixes"},
       {kReceptionAccuracy, "fraction",
        "mean over participants of the accuracy of the received model on own test samples, before "
        "local training"}});
  codec_ = averaging_.links.open(setup, setup.initial_model());
  clouds_ = &setup.store().rows("cloud", setup.initial_model());
  if (evaluated_ == Evaluated::Trained) {
    personal_ = &setup.store().rows("personal", clouds_->initial());
  }
  optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), clouds_->layout());
}

void PFedGraph::round(Round& round) {
  SentRows sent;
  round.each_block([&](Block& block) {
    const Rows received = block.download(clouds_->read(block.clients()));  // [C, P]  u_i
    const Rows trained = client_update(block, received);                   // [C, P]  theta_i
    block.note_received(kReceptionAccuracy, block.evaluate(received));
    block.keep_buffers(trained);
    if (personal_ != nullptr) block.keep(*personal_, trained);
    sent.add(block, block.weights(averaging_.weighting), block.upload_models(trained, *codec_));
  });
  const Coupling server = round.coupling(sent.clients());
  const Tensor sizes = server.all_rows(sent.weights());  // [S]
  const Rows models = sent.take(clouds_->initial());     // [S_r, P]  theta_j
  const Tensor cosines =                                 // [S, S]  c
      server.cosines(models, clouds_->layout()->ranges(Tag::Trainable), clouds_->initial());
  const Tensor graph = graph_of(cosines, sizes, alpha_, alike_);  // [S, S]  w
  note(round, graph);
  clouds_->write(sent.clients(), server.approach(graph, models));  // u_i <- sum_j w_ij theta_j
}

Rows PFedGraph::client_update(Block& block, const Rows& received) {
  if (lambda_ == 0) return block.train(received);
  const Rows local = received.clone();
  const Rows directions = directions_of(received, block.clients());
  optimizer_->reset(local.values);
  block.each_step(Steps::Alike, [&](LocalStep& step) {
    // theta <- theta - eta grad (F_i(theta) - lambda cos(theta, u_i))
    const Tensor gradient = step.gradient(local);
    const Rows model = step.active(local);
    add_term({gradient.narrow(0, 0, model.count()), model.layout}, model, step.active(directions));
    step.step_(local.values, gradient, *optimizer_);
  });
  return local;
}

Rows PFedGraph::directions_of(const Rows& received, std::span<const std::int64_t> clients) const {
  const Rows rows = received.clone();
  for (std::size_t c = 0; c < clients.size(); ++c) {
    if (!clouds_->written(clients[c])) rows.values[static_cast<std::int64_t>(c)].zero_();
  }
  scale_columns_(rows, 0, Tag::Buffer);
  scale_(rows, inverse_lengths(rows));
  return rows;
}

// With the direction d = u_i / ||u_i||: cos = <d, theta> / ||theta||, and its gradient is
// (d - cos theta / ||theta||) / ||theta||.
void PFedGraph::add_term(const Rows& gradient, const Rows& model, const Rows& direction) const {
  const RowNumbers inverse = inverse_lengths(model);
  const RowNumbers cosine = inner_products(model, direction).ab * inverse;
  add_columns_(gradient, -lambda_ * inverse, direction, Tag::Trainable);
  add_columns_(gradient, lambda_ * (cosine * inverse * inverse), model, Tag::Trainable);
}

Tensor PFedGraph::graph_of(const Tensor& cosines, const Tensor& sizes, double alpha, double alike) {
  // A model that is not finite has no cosine, and weighs nothing for others.
  const Tensor c = cosines.masked_fill(cosines.isfinite().logical_not(),
                                       -std::numeric_limits<double>::infinity());
  c.masked_fill_(c.gt(alike), 1);
  c.diagonal().fill_(1);
  // All of a row may be lowered by one number: none is above 0 then, however small alpha is.
  return project_to_simplex(c.sub_(1).div_(2 * alpha).add_(sizes.div(sizes.sum())));
}

void PFedGraph::note(Round& round, const Tensor& graph) const {
  const auto participants = static_cast<double>(graph.size(0));
  if (participants == 0) return;
  const Tensor own = graph.diagonal();
  const auto mean = [&](const Tensor& sum) { return sum.item<double>() / participants; };
  round.note(kOwnWeight, mean(own.sum()));
  round.note(kCollaborators, mean(graph.gt(0).sum().sub(own.gt(0).sum()).to(at::kDouble)));
}

void PFedGraph::evaluate(Evaluation& evaluation) {
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(personal_ != nullptr ? personal_->read(block.clients())
                                        : block.as_received(clouds_->read(block.clients())));
  });
}

}  // namespace fedhpc
