#include "reference/sfedhp_reference.hpp"

#include <algorithm>

#include "reference/personal.hpp"

namespace fedhpc::reference {

namespace {

/// factor a + other_factor b.
Parameters combined(double factor, const Parameters& a, double other_factor, const Parameters& b) {
  Parameters sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(a[i].mul(factor).add(b[i], other_factor));
  }
  return sum;
}

/// grad phi_rho(x) = tanh(x / rho).
Parameters slope(const Parameters& x, double rho) {
  Parameters slopes;
  for (const Tensor& values : x) slopes.push_back(values.div(rho).tanh());
  return slopes;
}

double squared_norm(const Parameters& x) {
  const Tensor all = flatten(x);
  return all.dot(all).item().toDouble();
}

/// Entries up to the threshold become 0.
Parameters without_small_entries(const Parameters& x, double threshold) {
  Parameters kept;
  for (const Tensor& values : x) {
    kept.push_back(values.masked_fill(values.abs().le(threshold), 0));
  }
  return kept;
}

double non_zeros(const Parameters& x) { return flatten(x).ne(0).sum().item().toDouble(); }

double density(const Parameters& x) {
  return non_zeros(x) / static_cast<double>(flatten(x).numel());
}

/// Of a sparse model 64 bits for what is not 0, a bit for what is, a bit for each entry that tells
/// which; of a dense one 64 for each entry.
double bits(const Parameters& x, bool sparse) {
  const auto d = static_cast<double>(flatten(x).numel());
  if (!sparse) return 64 * d;
  const double nnz = non_zeros(x);
  return 64 * nnz + (d - nnz) + d;
}

class PlainMean {
 public:
  void add(double value) {
    sum_ += value;
    count_ += 1;
  }
  double value() const { return sum_ / count_; }  // NaN of nothing

 private:
  double sum_ = 0;
  double count_ = 0;
};

class SFedHP {
 public:
  SFedHP(const Problem& problem, const SFedHPSettings& settings)
      : problem_(problem), settings_(settings) {
    steps_ = problem.optimizer;
    steps_.lr = settings.personal_lr;
    result_.personal.resize(problem.clients.size());
    result_.edges.assign(static_cast<std::size_t>(problem.edges), problem.initial);
  }

  SFedHPOutcome run() {
    w_ = problem_.initial;
    for (round_ = 1; round_ <= problem_.rounds; ++round_) play_round();
    result_.outcome.global = flatten(w_);
    for (Parameters& personal : result_.personal) {
      if (personal.empty()) personal = w_;
    }
    return result_;
  }

 private:
  void play_round() {
    gammas_ = gammas_now();
    result_.gammas.push_back(gammas_);
    loss_ = RoundLoss();
    PlainMean personal;
    PlainMean edge;
    PlainMean bits_up;
    Average cloud;
    for (const EdgeCohort& drawn : edge_cohorts(problem_, round_)) {
      const double weight = update_edge(drawn);
      const Parameters& w_i = result_.edges[static_cast<std::size_t>(drawn.edge)];
      if (weight == 0) continue;  // nobody there has samples
      cloud.add(arrived(w_i), problem_.uniform ? 1 : weight);
      edge.add(density(trained(w_i)));
      bits_up.add(bits(trained(w_i), settings_.gamma2 > 0));
      for (const std::int64_t k : drawn.clients) {
        const Parameters& theta = result_.personal[index(k)];
        if (!theta.empty()) personal.add(density(trained(theta)));
      }
    }
    const Parameters mean = cloud.mean_or(w_);
    w_ = sparse_if(settings_.gamma2 > 0,
                   with_statistics(problem_, mixed(w_, mean, settings_.beta), mean));
    was_sparse_ = was_sparse_ || personal.value() < settings_.gamma_density;
    result_.density_personal.push_back(personal.value());
    result_.density_edge.push_back(edge.value());
    result_.density_global.push_back(density(trained(w_)));
    result_.bits_up.push_back(bits_up.value());
    result_.outcome.train_loss.push_back(loss_.mean());
  }

  /// EdgeUpdate(i, w): R edge rounds; gives what the edge's participants weigh.
  double update_edge(const EdgeCohort& drawn) {
    const double lambda1 = settings_.lambda1;
    const double lambda2 = settings_.lambda2;
    Parameters phi_i = arrived(w_);
    Parameters w_i = phi_i;
    std::vector<Parameters> theta(drawn.clients.size(), w_);
    double weight = 0;
    for (std::int64_t r = 0; r < settings_.edge_rounds; ++r) {
      Average mean;
      const Parameters received = arrived(phi_i);
      for (std::size_t j = 0; j < drawn.clients.size(); ++j) {
        const std::int64_t k = drawn.clients[j];
        const bool trains = !batches(problem_, k, round_, /*pass=*/r).empty();
        if (r == 0 || settings_.restart_every_step || !trains) theta[j] = received;
        update_client(k, r, received, theta[j]);
        mean.add(arrived(theta[j]), weight_of(problem_, k));
      }
      // (10), averaged over j; running statistics are the mean of theta's
      weight = mean.weight();
      if (weight == 0) continue;
      const Parameters mean_theta = mean.mean_or(phi_i);
      phi_i =
          combined(lambda1 / (lambda1 + lambda2), mean_theta, lambda2 / (lambda1 + lambda2), w_i);
      phi_i = sparse_if(settings_.gamma2 > 0, with_statistics(problem_, phi_i, mean_theta));
      // (11)
      const Parameters gradient = combined(1, combined(lambda2, w_i, -lambda2, phi_i), gammas_.two,
                                           slope(w_i, settings_.rho));
      w_i = with_statistics(problem_, combined(1, w_i, -problem_.lr, gradient), phi_i);
    }
    result_.edges[static_cast<std::size_t>(drawn.edge)] =
        sparse_if(settings_.gamma2 > 0 && weight > 0, w_i);
    return weight;
  }

  /// theta <- about argmin H(theta; phi_i, D) for each batch D of edge round r.
  void update_client(std::int64_t k, std::int64_t r, const Parameters& phi_i, Parameters& theta) {
    Trained trained;
    for (const auto& batch : batches(problem_, k, round_, /*pass=*/r)) {
      trained.count(solve(k, batch, phi_i, theta), batch.size());
    }
    loss_.add(trained);
    if (trained.samples == 0) return;
    theta = sparse_if(settings_.gamma1 > 0, theta);
    result_.personal[index(k)] = theta;
  }

  /// (8) by steps of a fresh optimizer until (9); gives the data loss where theta was.
  double solve(std::int64_t k, const std::vector<std::int64_t>& batch, const Parameters& phi_i,
               Parameters& theta) {
    Optimizer optimizer(steps_);
    double first_loss = 0;
    for (std::int64_t step = 0; step < settings_.inner_steps; ++step) {
      const LossAndGradient data =
          training_loss_(problem_, theta, problem_.clients[index(k)], batch,
                         step == 0 ? Statistics::Move : Statistics::Stay);
      if (step == 0) first_loss = data.loss;
      const Parameters gradient =
          combined(1, pulled(steps_.clipped(data.gradient), theta, phi_i, settings_.lambda1),
                   gammas_.one, slope(theta, settings_.rho));
      if (settings_.accuracy > 0 && squared_norm(trained(gradient)) <= settings_.accuracy) {
        ++result_.reached;
        return first_loss;
      }
      Parameters next = theta;
      optimizer.step_(next, gradient);
      theta = with_statistics(problem_, next, theta);
    }
    ++result_.not_reached;
    return first_loss;
  }

  Gammas gammas_now() const {
    const bool by_density = was_sparse_;
    const bool by_round = round_ > settings_.gamma_rounds;
    const double later1 = std::min(settings_.gamma1, settings_.gamma_later);
    const double later2 = std::min(settings_.gamma2, settings_.gamma_later);
    const auto choose = [&](bool one, bool two) {
      return Gammas{.one = one ? later1 : settings_.gamma1, .two = two ? later2 : settings_.gamma2};
    };
    switch (settings_.gamma_schedule) {
      case GammaSchedule::Constant:
        return choose(false, false);
      case GammaSchedule::Either:
        return choose(by_density || by_round, by_density || by_round);
      case GammaSchedule::Both:
        return choose(by_density && by_round, by_density && by_round);
      case GammaSchedule::Each:
        return choose(by_density, by_round);
    }
    return {};
  }

  Parameters arrived(const Parameters& x) const {
    return settings_.transmitted ? unflatten(settings_.transmitted(flatten(x)), x) : x;
  }

  Parameters sparse_if(bool sparse, const Parameters& x) const {
    if (!sparse) return x;
    return with_statistics(problem_, without_small_entries(x, settings_.zero_threshold), x);
  }

  Parameters trained(const Parameters& x) const { return chosen(x, trainable(problem_)); }

  static std::size_t index(std::int64_t k) { return static_cast<std::size_t>(k); }

  const Problem& problem_;
  const SFedHPSettings& settings_;
  OptimizerSettings steps_;  // on theta
  Parameters w_;
  std::int64_t round_ = 0;
  Gammas gammas_;
  bool was_sparse_ = false;  // the clients' models, in some earlier round
  RoundLoss loss_;
  SFedHPOutcome result_;
};

}  // namespace

SFedHPOutcome sfedhp(const Problem& problem, const SFedHPSettings& settings) {
  return SFedHP(problem, settings).run();
}

}  // namespace fedhpc::reference
