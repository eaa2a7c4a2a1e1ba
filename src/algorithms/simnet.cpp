#include "fedhpc/algorithms/simnet.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/algorithms/local_gradient.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kPrimal = "primal_residual";
constexpr const char* kDual = "dual_residual";
constexpr const char* kSteps = "admm_steps";
constexpr const char* kShrinkage = "shrinkage";
constexpr const char* kPlateaus = "plateaus";
constexpr const char* kDistortion = "distortion";
constexpr const char* kGraphBytes = "graph_bytes";

/// Everything and nothing.
constexpr Columns kAll{};
constexpr Columns kNothing{.with = Tag::Trainable, .without = Tag::Trainable};

/// ||a - b|| / ||b|| row by row, 0 where both are 0.
std::vector<double> relative_distances(const Rows& a, const Rows& b) {
  std::vector<double> relative = squared_lengths(a - b).values();
  const std::vector<double> lengths = squared_lengths(b).values();
  for (std::size_t c = 0; c < relative.size(); ++c) {
    relative[c] = relative[c] == 0 ? 0 : std::sqrt(relative[c] / lengths[c]);
  }
  return relative;
}

/// Edges [E, 2] int64 and their weights [E].
std::pair<Tensor, Tensor> as_tensors(const SimilarityGraph& graph) {
  const auto count = static_cast<std::int64_t>(graph.edges.size());
  Tensor edges = at::empty({count, 2}, at::kLong);
  Tensor weights = at::empty({count}, at::kDouble);
  auto* next = edges.data_ptr<std::int64_t>();
  for (const auto& [i, j] : graph.edges) {
    *next++ = i;
    *next++ = j;
  }
  std::copy(graph.weights.begin(), graph.weights.end(), weights.data_ptr<double>());
  return {edges, weights};
}

SimilarityGraph graph_of(std::int64_t nodes, const Tensor& edges, const Tensor& weights) {
  SimilarityGraph graph;
  graph.nodes = nodes;
  const auto* ends = edges.const_data_ptr<std::int64_t>();
  const auto* of_edge = weights.const_data_ptr<double>();
  for (std::int64_t m = 0; m < edges.size(0); ++m) {
    graph.edges.emplace_back(ends[2 * m], ends[2 * m + 1]);
    graph.weights.push_back(of_edge[m]);
  }
  return graph;
}

}  // namespace

std::pair<Columns, Columns> SimNet::columns_of(Personal personal) {
  switch (personal) {
    case Personal::Head:
      return {{.with = Tag::Head, .without = Tag::Buffer}, {.without = Tag::Head}};
    case Personal::Body:
      return {{.without = Tag::Head | Tag::Buffer}, {.with = Tag::Head | Tag::Buffer}};
    case Personal::Norm:
      return {{.with = Tag::Norm, .without = Tag::Buffer}, {.without = Tag::Norm}};
    case Personal::All:
      return {{.without = Tag::Buffer}, {.with = Tag::Buffer}};
    case Personal::None:
      break;
  }
  return {kNothing, kAll};
}

void SimNet::declare(OptionSet& options) {
  const Condition own = unless("algorithm.personal", "none");
  const Condition meets = both(own, unless("algorithm.neighbours", "0"));
  const Condition couples = both(meets, unless("algorithm.lambda", "0"));
  network_.declare(options, own);
  options.add(
      "algorithm.personal", personal_tag_,
      Names<Personal>{{"head", Personal::Head},
                      {"body", Personal::Body},
                      {"norm", Personal::Norm},
                      {"all", Personal::All},
                      {"none", Personal::None}},
      "columns that are a client's own: the classifier, all but it, batch norm's, all, none");
  options
      .add("algorithm.shared", shared_tag_,
           Names<Shared>{{"rest", Shared::Rest}, {"all", Shared::All}},
           "columns that all share: the others, or all, with the personal ones added to them")
      .acts(own);
  options
      .add("algorithm.personal_start", start_,
           Names<Start>{{"auto", Start::Auto}, {"zero", Start::Zero}, {"initial", Start::Initial}},
           "first personal coordinates; auto: 0 where they are the classifier's or lie over "
           "shared ones, else the initial model's")
      .acts(own);
  options
      .add("algorithm.lambda", lasso_options_.lambda, at_least(0.0),
           "weight of the distances between neighbours; 0: nodes are alone")
      .acts(meets);
  options
      .add("algorithm.p", lasso_options_.norm,
           Names<VectorNorm>{
               {"1", VectorNorm::One}, {"2", VectorNorm::Two}, {"infinity", VectorNorm::Infinity}},
           "norm of those distances")
      .acts(couples);
  options
      .add_or_auto("algorithm.personal_lr", personal_lr_, above(0.0),
                   "rate of the personal coordinates, of which a client feels one N-th; auto: "
                   "train.lr")
      .acts(own);
  options
      .add("algorithm.admm_steps", lasso_options_.steps, count_from(1),
           "steps K of the alternating direction method in a round, at most")
      .acts(couples);
  options
      .add_or_auto("algorithm.admm_rho", lasso_options_.rho, above(0.0),
                   "its penalty; auto: 1 / (personal_lr (1 + mean degree))")
      .acts(couples);
  options
      .add("algorithm.admm_tolerance", lasso_options_.tolerance, at_least(0.0),
           "ends it once the relative residuals are at most that; 0: after admm_steps")
      .acts(couples);
  options.add("algorithm.gamma", gamma_, at_least(0.0),
              "weight of differences between neighbouring entries of an update; 0: gradients");
  options
      .add("algorithm.gamma_schedule", gamma_schedule_,
           Names<GammaSchedule>{{"constant", GammaSchedule::Constant},
                                {"inverse_sqrt", GammaSchedule::InverseSqrt},
                                {"inverse", GammaSchedule::Inverse}},
           "gamma of round t: constant, gamma / sqrt(t), gamma / t")
      .acts(unless("algorithm.gamma", "0"));
  links_.declare(options, LinkOptions::Payloads::Changes);
  require_plain_gradients(options, "simnet");
}

Traits SimNet::traits() const {
  const bool all_personal = shared_tag_ == Shared::Rest && personal_tag_ == Personal::All;
  return {.models = all_personal ? Models::Personal : Models::Shared,
          .can_leave_rounds = false,
          .divides_by_rate = true};
}

void SimNet::initialise(const Setup& setup) {
  setup.add_metrics(
      {{kPrimal, "1", "relative primal residual ||W - Z Q|| of the network lasso's last step"},
       {kDual, "1", "its relative dual residual"},
       {kSteps, "1", "steps of the alternating direction method"},
       {kShrinkage, "1",
        "||nabla - g|| / ||g|| of trainable columns, what drawing together has moved"},
       {kPlateaus, "1", "runs of equal neighbours in an upload"},
       {kDistortion, "1",
        "||upload - nabla|| / ||nabla|| of trainable columns, what the codec has moved"},
       {kGraphBytes, "bytes", "what a client has told of itself for the graph, in round 1"}});
  initial_ = setup.initial_model();
  layout_ = initial_.layout;
  seed_ = setup.seed();
  eta_ = setup.training().lr;
  clip_norm_ = setup.training().clip_norm;
  codec_ = links_.open(setup, initial_);
  own_ = setup.store().clients();
  const auto [personal, rest] = columns_of(personal_tag_);
  personal_ = RowPart(layout_, personal);
  shared_ = RowPart(layout_, shared_tag_ == Shared::All ? kAll : rest);
  trainable_ = RowPart(layout_, {.with = Tag::Trainable});
  x_ = shared_.of(initial_).clone();
  Rows z = personal_.of(initial_).clone();
  const bool zero =
      start_ == Start::Zero ||
      (start_ == Start::Auto && (shared_tag_ == Shared::All || personal_tag_ == Personal::Head));
  if (zero) z.values.zero_();
  z_ = z.values.numel() > 0 ? &setup.store().rows("personal", z) : nullptr;
  clients_ = setup.clients();
  set_graph({});
}

void SimNet::set_graph(SimilarityGraph graph) { lasso_.emplace(std::move(graph), lasso_options_); }

void SimNet::prepare(Round& everybody) {
  if (network_.neighbours() == 0 || personal_tag_ == Personal::None) return;
  set_graph(network_.build(everybody, own_, initial_, seed_));
  graph_bytes_ = network_.bytes_per_client();
}

void SimNet::round(Round& round) {
  const double eta = eta_ * round.lr_factor();
  const double share =
      personal_lr_.value_or(eta) / std::max(1.0, round.total_weight(Weighting::Uniform));
  const Rows z = personal_rows(own_);  // [N_r, d_2]  Z_t
  const Rows target = z.clone();       // [N_r, d_2]  Z_t - eta N^T nabla / N
  Mean mean = round.mean(shared_.layout());
  round.each_block([&](Block& block) {
    // y^(n) = M x_t + N z_t^(n)
    const Rows y = block.download(joined(personal_rows(block.clients())));  // [C, P]
    const Rows gradients = local_gradient(block, y, eta, clip_norm_);       // g^(n)
    const Rows nabla = drawn_together(gradients, round.number());           // nabla^(n)
    const Rows sent = block.upload(nabla, *codec_);
    note_sent(block, gradients, nabla, sent);
    mean.add(block.weights(Weighting::Uniform), shared_.of(sent));
    const Rows of_personal = personal_.of(sent);  // N^T nabla
    for (std::int64_t c = 0; c < block.count(); ++c) {
      const std::int64_t client = block.clients()[static_cast<std::size_t>(c)];
      target.values[place_of(client, own_)].sub_(of_personal.values[c], share);
    }
  });
  x_ += -eta * mean.reduce();  // x_{t+1} = x_t - eta_t (1/N) sum_n M^T nabla^(n)
  update_personal_(round, z, target);
  round.note(kGraphBytes, round.number() == 1 ? graph_bytes_ : 0);
}

Rows SimNet::drawn_together(const Rows& gradients, std::int64_t t) {
  if (gamma_ == 0) return gradients;
  const Rows drawn = gradients.clone();
  const Rows coordinates = trainable_.of(drawn);
  fused_lasso_.prox_(coordinates.values, gamma_of(t));
  if (!trainable_.is_whole()) trainable_.put_(drawn, coordinates);
  return drawn;
}

void SimNet::update_personal_(Round& round, const Rows& z, const Rows& target) {
  constexpr std::int64_t kStripe = NetworkLasso::kStripe;
  const Coupling clients = round.coupling(own_);
  Rows next = target;
  NetworkLassoReport report;
  if (!lasso_->graph().edges.empty() && personal_.layout()->size() > 0) {
    const Tensor columns = clients.to_columns(z, kStripe);  // [N, w]
    report = clients.solve_(*lasso_, columns, clients.to_columns(target, kStripe),
                            personal_lr_.value_or(eta_ * round.lr_factor()));
    clients.from_columns_(next, columns, kStripe);
  }
  if (z_ != nullptr) z_->write(own_, next);
  round.note(kPrimal, report.primal);
  round.note(kDual, report.dual);
  round.note(kSteps, static_cast<double>(report.steps));
}

void SimNet::note_sent(Block& block, const Rows& gradients, const Rows& nabla,
                       const Rows& sent) const {
  // Nothing is computed, and no device waited for, where nothing has moved.
  const auto moved = [&](const Rows& rows, const Rows& before) {
    return rows.values.is_same(before.values)
               ? std::vector<double>(static_cast<std::size_t>(block.count()), 0)
               : relative_distances(rows, before);
  };
  block.note(kShrinkage, moved(nabla, gradients));
  block.note(kDistortion, moved(sent, nabla));
  const std::vector<std::int64_t> plateaus = count_plateaus(sent);
  block.note(kPlateaus, std::vector<double>(plateaus.begin(), plateaus.end()));
}

Rows SimNet::personal_rows(std::span<const std::int64_t> clients) const {
  if (z_ != nullptr) return z_->read(clients);
  return {at::empty({static_cast<std::int64_t>(clients.size()), 0}, initial_.values.options()),
          personal_.layout()};
}

Rows SimNet::joined(const Rows& z) const {
  Rows models{at::zeros({z.count(), layout_->size()}, initial_.values.options()), layout_};
  personal_.put_(models, z);
  if (shared_tag_ == Shared::Rest) {
    shared_.put_(models, x_);
  } else {
    models.values.add_(x_.values);  // x_a + z_b
  }
  return models;
}

double SimNet::gamma_of(std::int64_t t) const {
  const auto number = static_cast<double>(std::max<std::int64_t>(t, 1));
  switch (gamma_schedule_) {
    case GammaSchedule::InverseSqrt:
      return gamma_ / std::sqrt(number);
    case GammaSchedule::Inverse:
      return gamma_ / number;
    case GammaSchedule::Constant:
      break;
  }
  return gamma_;
}

std::vector<NamedTensor> SimNet::drawn_in(std::int64_t round) const {
  if (round > 0) return {};
  const auto [edges, weights] = as_tensors(lasso_->graph());
  const Tensor shared = at::zeros({layout_->size()}, at::kLong);
  const Columns columns = shared_tag_ == Shared::All ? kAll : columns_of(personal_tag_).second;
  for (const Field& field : layout_->fields()) {
    if (columns.hold(field.tags)) shared.narrow(0, field.offset, field.size).fill_(1);
  }
  return {{"edges", edges}, {"weights", weights}, {"shared", shared}};
}

void SimNet::evaluate(Evaluation& evaluation) {
  if (traits().models == Models::Shared) evaluation.shared(x_);
  evaluation.each_block([&](EvaluationBlock& block) {
    block.evaluate(block.as_received(joined(personal_rows(block.clients()))));
  });
}

void SimNet::visit_state(StateVisitor& state) {
  state.rows("x", x_);
  auto [edges, weights] = as_tensors(lasso_->graph());
  state.tensor("graph_edges", edges);
  state.tensor("graph_weights", weights);
  if (state.restores()) set_graph(graph_of(clients_, edges, weights));
}

}  // namespace fedhpc
