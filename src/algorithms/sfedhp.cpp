#include "fedhpc/algorithms/sfedhp.hpp"

#include <algorithm>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kPersonalDensity = "density_personal";
constexpr const char* kEdgeDensity = "density_edge";
constexpr const char* kGlobalDensity = "density_global";
constexpr const char* kPaperBits = "paper_bits_up";
constexpr const char* kSmoothedL1 = "smoothed_l1";
constexpr const char* kGamma1 = "gamma1";
constexpr const char* kGamma2 = "gamma2";

/// Remark 1: 64 bits for an entry that is not 0, 1 for one that is, and 1 to tell which it is. A
/// dense model is 64 bits an entry.
double paper_bits(bool sparse, std::int64_t nonzero, std::int64_t entries) {
  return static_cast<double>(sparse ? 64 * nonzero + (entries - nonzero) + entries : 64 * entries);
}

}  // namespace

void SFedHP::declare(OptionSet& options) {
  const Condition sparse = either(unless("algorithm.gamma1", "0"), unless("algorithm.gamma2", "0"));
  const Condition scheduled = unless("algorithm.gamma_schedule", "constant");
  const Condition not_each = unless("algorithm.gamma_schedule", "each");
  options.add("algorithm.lambda1", lambda1_, at_least(0.0),
              "weight of the term lambda1/2 ||theta - phi||^2 between personal and edge model");
  options.add("algorithm.lambda2", lambda2_, above(0.0),
              "weight of the term lambda2/2 ||phi - w||^2 between edge model and global model");
  options.add("algorithm.gamma1", gamma1_, at_least(0.0),
              "weight of the smoothed l1 norm of the personal models; 0: not sparse");
  options.add("algorithm.gamma2", gamma2_, at_least(0.0),
              "weight of the smoothed l1 norm of the global model; 0: not sparse");
  options
      .add("algorithm.rho", rho_, above(0.0),
           "where the smoothed l1 norm, rho sum log cosh(x / rho), turns from square to linear")
      .acts(sparse);
  options
      .add("algorithm.zero_threshold", zero_threshold_, at_least(0.0),
           "entries of sparse models up to this magnitude are sent and used as 0")
      .acts(sparse);
  options
      .add("algorithm.gamma_schedule", schedule_,
           Names<Schedule>{{"constant", Schedule::Constant},
                           {"either", Schedule::Either},
                           {"both", Schedule::Both},
                           {"each", Schedule::Each}},
           "when gamma1 and gamma2 become gamma_later: never; when personal models are sparse or "
           "(and) gamma_rounds are over; or gamma1 by the one, gamma2 by the other")
      .acts(sparse);
  options
      .add("algorithm.gamma_density", gamma_density_, between(0.0, 1.0),
           "mean density below which personal models are sparse")
      .acts(sparse)
      .acts(scheduled)
      .acts(either(not_each, unless("algorithm.gamma1", "0")));
  options
      .add("algorithm.gamma_rounds", gamma_rounds_, count_from(0),
           "rounds after which gamma_schedule acts")
      .acts(sparse)
      .acts(scheduled)
      .acts(either(not_each, unless("algorithm.gamma2", "0")));
  options
      .add("algorithm.gamma_later", gamma_later_, at_least(0.0),
           "what gamma1 and gamma2 become, unless they are smaller")
      .acts(sparse)
      .acts(scheduled);
  options.add(
      "algorithm.personal_lr", personal_lr_, at_least(0.0),
      "learning rate eta_2 of the personal model theta (train.lr is eta_1, of edge models)");
  options.add("algorithm.inner_steps", inner_.steps, count_from(1),
              "steps on theta with each batch (K)");
  options.add("algorithm.accuracy", inner_.accuracy, at_least(0.0),
              "nu: a client's steps on a batch end at ||gradient||^2 <= nu; 0: only after K");
  options
      .add("algorithm.restart", restart_,
           Names<Restart>{{"step", Restart::Step}, {"round", Restart::Round}},
           "where theta starts: at the edge's phi in every edge round, or only in the first of a "
           "round")
      .acts(unless("algorithm.edge_rounds", "1"));
  options.add("algorithm.edge_rounds", edge_rounds_, count_from(1),
              "edge rounds per global round (R)");
  // train.lr is of edges, which have no epochs.
  options.acts("train.lr_unit", unless("algorithm.name", "sfedhp"));
  options.add("algorithm.beta", beta_, at_least(0.0),
              "step from the old global model to the mean of the edges'; 1: the mean");
  averaging_.declare(options, LinkOptions::Payloads::ModelsUp,
                     "what models become on the wire in both directions, between clients and edges "
                     "and edges and cloud (fedhpc list codecs)");
}

void SFedHP::initialise(const Setup& setup) {
  setup.add_metrics({
      {kPersonalDensity, "1", "mean over participants of the share of theta_ij that is not 0"},
      {kEdgeDensity, "1", "mean over drawn edges that train of the share of w_i that is not 0"},
      {kGlobalDensity, "1", "share of the global model w that is not 0"},
      {kPaperBits, "bit",
       "what an edge sends up by the paper's count (Remark 1), mean over drawn edges that train: "
       "64 for an entry that is not 0, 1 for one that is, 1 more for each entry; 64 for each where "
       "gamma2 = 0"},
      {kSmoothedL1, "1", "phi_rho(w) = rho sum log cosh(w / rho) of a sparse global model"},
      {kGamma1, "1", "gamma_1 of the round"},
      {kGamma2, "1", "gamma_2 of the round"},
  });
  global_ = setup.initial_model();
  edges_ = setup.initial_edges();
  codec_ = averaging_.links.upload_codec();
  personal_ = &setup.store().rows("personal", global_);
  edge_lr_ = setup.training().lr;
  optimizer_ =
      std::make_unique<RowOptimizer>(setup.training().step_rule().at(personal_lr_), global_.layout);
}

void SFedHP::round(Round& round) {
  update_gammas(round.number());
  EdgeTier& edges = round.edges();
  edges.download_(global_, edges_, *codec_);  // w_i <- w
  const EdgeRows phi = edges_.clone();        // phi_i <- w
  edges.rounds(edge_rounds_, [&] {            // r = 0..R-1
    EdgeMean mean = edges.mean();
    round.each_block([&](Block& block) {
      const Rows received = block.download(phi, *codec_);
      const Rows theta = personalise(block, received, edges.round());
      mean.add(block.edges(), block.weights(averaging_.weighting),
               block.upload_models(theta, *codec_));
    });
    const EdgeRows theta = mean.reduce(/*otherwise=*/phi);  // 1/J sum_j theta_ij
    for (const std::int64_t i : edges.training()) {
      update_edge_(phi.of(i), edges_.of(i), theta.of(i), edge_lr_ * round.lr_factor());
    }
  });
  if (gamma2_ > 0) {
    for (const std::int64_t i : edges.training()) zero_small_(edges_.of(i), zero_threshold_);
  }
  const std::vector<double> weights = averaging_.weighting == Weighting::Uniform
                                          ? edges.equal_weights()
                                          : edges.weights_of_participants(averaging_.weighting);
  const Rows mean = edges.upload_mean(edges_, weights, *codec_, /*otherwise=*/global_);
  approach_(mean, global_, 1 - beta_);  // w <- (1 - beta) w + beta/S sum_i w_i
  global_ = mean;
  if (gamma2_ > 0) zero_small_(global_, zero_threshold_);
  note(round);
}

Rows SFedHP::personalise(Block& block, const Rows& phi, std::int64_t edge_round) {
  const bool goes_on = restart_ == Restart::Round && edge_round > 0;
  Rows theta = goes_on ? personal_->read(block.clients(), /*otherwise=*/phi) : phi.clone();
  const Penalty penalty{.mu = lambda1_, .centre = phi, .gamma = round_gamma1_, .rho = rho_};
  const Steps steps = inner_.accuracy > 0 ? Steps::Any : Steps::Alike;
  block.each_step(steps, [&](LocalStep& step) {  // D_ij
    // (8): theta ~ argmin l(theta; D) + lambda_1/2 ||theta - phi||^2 + gamma_1 phi_rho(theta)
    step.minimise_(theta, *optimizer_, penalty, inner_);
  });
  if (gamma1_ > 0) zero_small_(theta, zero_threshold_);
  block.keep(*personal_, theta);
  block.keep_buffers(theta);
  return theta;
}

void SFedHP::update_edge_(const Rows& phi, const Rows& w, const Rows& mean_theta,
                          double eta) const {
  // (10), (6): phi_i <- 1/J sum_j (lambda_1 theta_ij + lambda_2 w_i) / (lambda_1 + lambda_2)
  phi.values.copy_(mean_theta.values);
  approach_(phi, w, lambda2_ / (lambda1_ + lambda2_));
  if (gamma2_ > 0) zero_small_(phi, zero_threshold_);
  // (11): w_i <- w_i - eta_1 [lambda_2 (w_i - phi_i) + gamma_2 tanh(w_i / rho)]
  descend_(w, eta, {.mu = lambda2_, .centre = phi, .gamma = round_gamma2_, .rho = rho_});
  copy_columns_(w, phi, Tag::Buffer);
}

void SFedHP::update_gammas(std::int64_t round) {
  const bool sparse = is_sparse_ != 0;
  const bool late = round > gamma_rounds_;
  bool first = false;  // gamma_1 is to be later's
  bool second = false;
  switch (schedule_) {
    case Schedule::Constant:
      break;
    case Schedule::Either:
      first = second = sparse || late;
      break;
    case Schedule::Both:
      first = second = sparse && late;
      break;
    case Schedule::Each:
      first = sparse;
      second = late;
      break;
  }
  round_gamma1_ = first ? std::min(gamma1_, gamma_later_) : gamma1_;
  round_gamma2_ = second ? std::min(gamma2_, gamma_later_) : gamma2_;
}

void SFedHP::note(Round& round) {
  round.each_block([&](Block& block) {
    block.note(kPersonalDensity, densities(personal_->read(block.clients())));
  });
  const std::int64_t entries = global_.layout->count(Tag::Trainable);
  std::vector<double> shares;
  std::vector<double> bits;
  for (const std::int64_t nonzero : count_nonzero(edges_.rows)) {
    shares.push_back(static_cast<double>(nonzero) / static_cast<double>(entries));
    bits.push_back(paper_bits(gamma2_ > 0, nonzero, entries));
  }
  round.edges().note(kEdgeDensity, shares);
  round.edges().note(kPaperBits, bits);
  round.note(kGlobalDensity, densities(global_).front());
  if (gamma2_ > 0) round.note(kSmoothedL1, smoothed_l1(global_, rho_).front());
  round.note(kGamma1, round_gamma1_);
  round.note(kGamma2, round_gamma2_);
  if (round.noted(kPersonalDensity) < gamma_density_) is_sparse_ = 1;
}

void SFedHP::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.edges(edges_);
  evaluation.each_block(
      [&](EvaluationBlock& block) { block.evaluate(personal_->read(block.clients(), global_)); });
}

void SFedHP::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.edges("edges", edges_);
  state.integer("is_sparse", is_sparse_);
}

}  // namespace fedhpc
