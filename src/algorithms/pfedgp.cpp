#include "fedhpc/algorithms/pfedgp.hpp"

#include <algorithm>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kEvaluationPass = std::int64_t{1} << 31;  // beyond the steps of a training
constexpr std::int64_t kPointsPass = kEvaluationPass + 1;        // of the first inducing points

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
  options
      .add("algorithm.scored_share", settings_.scored_share,
           {.low = 0, .high = 1, .low_open = true, .high_open = true},
           "share of a batch that is scored by a classifier which knows the rest")
      .acts(where("algorithm.inducing_points", {"0"}));
  options.add("algorithm.inducing_points", points_per_class_, count_from(0),
              "inducing points of each class, embeddings that all clients learn and share; 0: "
              "classifiers know samples alone");
  options
      .add("algorithm.inducing_deviation", points_deviation_, above(0.0),
           "standard deviation of their first values")
      .acts(unless("algorithm.inducing_points", "0"));
  options.add(
      "algorithm.averaging", settings_.averaging,
      Names<Averaging>{{"probability", Averaging::Probability}, {"log", Averaging::LogProbability}},
      "what is averaged over a latent value: its probability, or (authors' program) the "
      "logarithm of it");
  options.add("algorithm.clip", clip_length_, at_least(0.0),
              "longest gradient of theta in a step; 0: any length");
  options.acts("train.clip_norm", unless("algorithm.name", "pfedgp"));  // it has that of its own
  averaging_.declare(options);
  server_.declare(options);
  options.add_check([](const OptionSet& given) {
    given.refuse_unless_default("train.label_smoothing",
                                "algorithm.name = pfedgp, whose loss is another one");
  });
}

void PFedGP::initialise(const Setup& setup) {
  initial_ = setup.initial_model();
  body_part_ = RowPart(initial_.layout, kBody);
  shared_ = body_part_.of(initial_);
  const std::vector<Field>& fields = initial_.layout->fields();
  const auto head = std::find_if(fields.begin(), fields.end(),
                                 [](const Field& field) { return has(field.tags, Tag::Head); });
  require(head != fields.end(), "a model ends in a classifier");
  classes_ = head->shape.front();
  width_ = head->shape.back();
  seed_ = setup.seed();
  points_layout_ = std::make_shared<Layout>();
  if (points_per_class_ > 0) add_inducing_points_();
  optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), initial_.layout);
  points_optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), points_layout_);
  codec_ = averaging_.links.open(setup, shared_);
  server_.start(shared_);
}

void PFedGP::add_inducing_points_() {
  const std::vector<std::int64_t> shape{classes_, points_per_class_, width_};
  const std::string name = "inducing_points";
  auto points = std::make_shared<Layout>();
  points->add(name, shape, width_, Tag::Trainable);
  auto shared = std::make_shared<Layout>();
  for (const Field& field : body_part_.layout()->fields()) {
    shared->add(field.name, field.shape, field.fan_in, field.tags, field.initial);
  }
  shared->add(name, shape, width_, Tag::Trainable);
  for (std::int64_t i = 0; i < classes_ * points_per_class_; ++i) {
    points_of_.push_back(i / points_per_class_);
  }
  Draws draws(key_of(0, 0, kPointsPass));
  const Tensor values = at::empty({1, points->size()}, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = points_deviation_ * draws.normal();
  }
  points_layout_ = std::move(points);
  shared_ = {at::cat({shared_.values, values.to(shared_.values.options())}, 1), std::move(shared)};
}

void PFedGP::round(Round& round) {
  Mean update = round.mean(shared_.layout);
  round.each_block([&](Block& block) {
    const Rows received = block.download(shared_);    // [C, d + I]  theta, X-bar
    const Rows trained = whole(received);             // [C, P]  theta_k <- theta
    const Rows points = points_of(received).clone();  // [C, I]  X-bar_k <- X-bar
    std::vector<ClassTree> trees;
    for (std::int64_t c = 0; c < block.count(); ++c) {
      const Rows model = trained.narrow(c);
      const Embedded embedded = block.embed(model, block.clients()[static_cast<std::size_t>(c)]);
      trees.push_back(class_tree(embedded.values, samples_of(embedded).labels));
    }
    optimizer_->reset(trained.values, kBody);
    points_optimizer_->reset(points.values);
    block.each_step(Steps::Any, [&](LocalStep& step) {
      const Tensor at = float64_values(points);
      const Tensor of_points = at::zeros_like(at);
      const auto loss = [&](std::int64_t c, const Tensor& embedding,
                            std::span<const std::int64_t> labels, const Tensor& gradient) {
        const auto k = static_cast<std::size_t>(c);
        const GpDraws omega{.key = key_of(block.clients()[k], round.number(), step.number()),
                            .chains = training_chains_};
        const LabelledValues samples{.values = embedding, .labels = labels};
        if (points_per_class_ == 0) {
          return gp_tree_loss(trees[k], samples, settings_, omega, gradient);
        }
        const LabelledValues known = labelled(at[c]);
        return gp_tree_loss(trees[k], samples, known, settings_, omega, gradient,
                            of_points[c].view(known.values.sizes()));
      };
      const Rows gradients{step.gradient_below_head(trained, loss), trained.layout};
      clip_(gradients, step.active());
      // theta_k <- theta_k - eta grad of the mean of -log P(y* | X, y), and X-bar_k in the same way
      step.step_(trained.values, gradients.values, *optimizer_);
      if (points_per_class_ == 0) return;
      step.step_(points.values, beside(points, of_points), *points_optimizer_);
    });
    block.keep_buffers(trained);
    update.add(block.weights(averaging_.weighting),
               block.upload(shared_of(trained, points) - received, *codec_));
  });
  // theta <- theta + sum_k p_k (theta_k - theta), and X-bar
  server_.step_(shared_, update.reduce());
}

void PFedGP::clip_(const Rows& gradients, std::int64_t count) const {
  if (clip_length_ == 0) return;
  const Rows rows = gradients.narrow(0, count);
  const Rows of_body = body_part_.of(rows);
  scale_(of_body, at_most(clip_length_ / sqrt(squared_lengths(of_body)), 1));
  body_part_.put_(rows, of_body);
}

Rows PFedGP::whole(const Rows& shared) const {
  const LayoutPtr& body = body_part_.layout();
  const Rows models = initial_.replicate(shared.count());
  body_part_.put_(models, {shared.values.narrow(1, 0, body->size()), body});
  return models;
}

Rows PFedGP::points_of(const Rows& shared) const {
  return {shared.values.narrow(1, body_part_.layout()->size(), points_layout_->size()),
          points_layout_};
}

Rows PFedGP::shared_of(const Rows& models, const Rows& points) const {
  const Rows bodies = body_part_.of(models);
  if (points_per_class_ == 0) return bodies;
  return {at::cat({bodies.values, points.values}, 1), shared_.layout};
}

LabelledValues PFedGP::labelled(const Tensor& points) const {
  const auto count = static_cast<std::int64_t>(points_of_.size());
  return {.values = points.view({count, points.size(0) / count}), .labels = points_of_};
}

DrawKey PFedGP::key_of(std::int64_t client, std::int64_t round, std::int64_t pass) const {
  return {.seed = seed_,
          .purpose = Purpose::Gibbs,
          .pass = static_cast<std::uint64_t>(pass),
          .client = static_cast<std::uint64_t>(client),
          .round = static_cast<std::uint64_t>(round)};
}

void PFedGP::evaluate(Evaluation& evaluation) {
  evaluation.shared(shared_);
  const Rows model = whole(shared_);
  const Tensor points = float64_values(points_of(shared_))[0];
  evaluation.each_block([&](EvaluationBlock& block) {
    const auto count = static_cast<std::int64_t>(block.clients().size());
    block.evaluate(
        block.as_received(model.replicate(count)), [&](std::int64_t c, const Embedded& training) {
          const std::int64_t client = block.clients()[static_cast<std::size_t>(c)];
          const GpDraws omega{.key = key_of(client, block.round(), kEvaluationPass),
                              .chains = test_chains_};
          const LabelledValues samples = samples_of(training);
          auto tree = points_per_class_ == 0 ? GpTree(samples, settings_, omega)
                                             : GpTree(samples, labelled(points), settings_, omega);
          return [this, tree = std::move(tree)](const Tensor& embedding) {
            return tree.log_probabilities(embedding, classes_);
          };
        });
  });
}

}  // namespace fedhpc
