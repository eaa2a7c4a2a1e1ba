#include "fedhpc/algorithms/pfedgp.hpp"

#include <algorithm>
#include <cmath>

#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/rounds/upload.hpp"

namespace fedhpc {

namespace {

constexpr Columns kBody{.without = Tag::Head};

constexpr std::int64_t kEvaluationPass = std::int64_t{1} << 31;  // beyond the steps of a training

LabelledValues samples_of(const Embedded& embedded) {
  return {.values = embedded.values,
          .labels = {embedded.labels.const_data_ptr<std::int64_t>(),
                     static_cast<std::size_t>(embedded.labels.size(0))}};
}

}  // namespace

void PFedGP::declare(OptionSet& options) {
  GpKernel& kernel = settings_.kernel;
  options.add("algorithm.outputscale", kernel.outputscale, above(0.0),
              "variance of the latent values of a client's classifiers");
  options.add("algorithm.lengthscale", kernel.lengthscale, above(0.0),
              "distance over which they change, between embeddings of length 1");
  options.add("algorithm.jitter", kernel.jitter, above(0.0),
              "variance of each sample's own, added to the outputscale");
  const Bounds<std::int64_t> chains = between<std::int64_t>(1, kMostGpChains);
  options.add("algorithm.draws", training_chains_.draws, chains,
              "Gibbs chains of a node's classifier in training, each with one draw");
  options.add("algorithm.gibbs_steps", training_chains_.steps, count_from(1),
              "steps of each of them");
  options.add("algorithm.test_draws", test_chains_.draws, chains,
              "Gibbs chains of a node's classifier in evaluation");
  options.add("algorithm.test_gibbs_steps", test_chains_.steps, count_from(1),
              "steps of each of them");
  options.add("algorithm.scored_share", settings_.scored_share,
              {.low = 0, .high = 1, .low_open = true, .high_open = true},
              "share of a batch that is scored by a classifier which knows the rest");
  options.add(
      "algorithm.averaging", settings_.averaging,
      Names<Averaging>{{"probability", Averaging::Probability}, {"log", Averaging::LogProbability}},
      "what is averaged over a latent value: its probability, or (authors' program) the "
      "logarithm of it");
  options.add("algorithm.clip", clip_length_, at_least(0.0),
              "longest gradient of a step; 0: any length");
  averaging_.declare(options);
}

void PFedGP::initialise(const Setup& setup) {
  initial_ = setup.initial_model();
  body_part_ = RowPart(initial_.layout, kBody);
  body_ = body_part_.of(initial_);
  const std::vector<Field>& fields = initial_.layout->fields();
  const auto head = std::find_if(fields.begin(), fields.end(),
                                 [](const Field& field) { return has(field.tags, Tag::Head); });
  require(head != fields.end(), "a model ends in a classifier");
  classes_ = head->shape.front();
  optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), initial_.layout);
  codec_ = averaging_.make_upload_codec();
  seed_ = setup.seed();
}

RowsInHand PFedGP::rows_in_hand() const {
  // Received, the model, its gradient, and parts of the latter two.
  return {.full = 5, .once = 3};
}

void PFedGP::round(Round& round) {
  Mean update = round.mean(body_part_.layout());
  const Rows model = whole(body_);
  round.each_block([&](Block& block) {
    const Rows received = block.download(body_);  // [C, d]  theta
    const Rows trained = whole(received);         // [C, P]  theta_k <- theta
    std::vector<ClassTree> trees;
    for (const std::int64_t client : block.clients()) {
      const Embedded embedded = block.embed(model, client);
      trees.push_back(class_tree(embedded.values, samples_of(embedded).labels));
    }
    optimizer_->reset(block.count(), trained.values.options(), kBody);
    block.each_step([&](LocalStep& step) {
      const auto loss = [&](std::int64_t c, const Tensor& embedding,
                            std::span<const std::int64_t> labels, const Tensor& gradient) {
        const auto k = static_cast<std::size_t>(c);
        const GpDraws omega{.key = key_of(block.clients()[k], round.number(), step.number()),
                            .chains = training_chains_};
        return gp_tree_loss(trees[k], {.values = embedding, .labels = labels}, settings_, omega,
                            gradient);
      };
      const Rows gradients{step.gradient_below_head(trained, loss), trained.layout};
      clip_(gradients, step.active());
      // theta_k <- theta_k - eta grad of -sum log P(y* | X, y)
      step.step_(trained.values, gradients.values, *optimizer_);
    });
    update.add(block.weights(averaging_.weighting),
               block.upload(body_part_.of(trained) - received, *codec_));
  });
  body_ += update.reduce();  // theta <- theta + sum_k p_k (theta_k - theta)
}

void PFedGP::clip_(const Rows& gradients, std::int64_t count) const {
  if (clip_length_ == 0) return;
  const Rows rows{gradients.values.narrow(0, 0, count), gradients.layout};
  const Rows of_body = body_part_.of(rows);
  std::vector<double> factors;
  for (const double square : squared_lengths(of_body)) {
    factors.push_back(std::min(1.0, clip_length_ / std::sqrt(square)));
  }
  if (std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; })) return;
  const Tensor by_row = upload(factors, rows.values.device()).to(rows.values.scalar_type());
  of_body.values.mul_(by_row.unsqueeze(1));
  body_part_.put_(rows, of_body);
}

Rows PFedGP::whole(const Rows& bodies) const {
  const Rows models = initial_.replicate(bodies.count());
  body_part_.put_(models, bodies);
  return models;
}

DrawKey PFedGP::key_of(std::int64_t client, std::int64_t round, std::int64_t pass) const {
  return {.seed = seed_,
          .purpose = Purpose::Gibbs,
          .pass = static_cast<std::uint64_t>(pass),
          .client = static_cast<std::uint64_t>(client),
          .round = static_cast<std::uint64_t>(round)};
}

void PFedGP::evaluate(Evaluation& evaluation) {
  evaluation.shared(body_);
  const Rows model = whole(body_);
  evaluation.each_block([&](EvaluationBlock& block) {
    const auto count = static_cast<std::int64_t>(block.clients().size());
    block.evaluate(model.replicate(count), [&](std::int64_t c, const Embedded& training) {
      const std::int64_t client = block.clients()[static_cast<std::size_t>(c)];
      const GpDraws omega{.key = key_of(client, block.round(), kEvaluationPass),
                          .chains = test_chains_};
      return [this, tree = GpTree(samples_of(training), settings_, omega)](
                 const Tensor& embedding) { return tree.log_probabilities(embedding, classes_); };
    });
  });
}

void PFedGP::visit_state(StateVisitor& state) { state.rows("body", body_); }

}  // namespace fedhpc
