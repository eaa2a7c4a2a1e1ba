#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"
#include "fedhpc/math/gp_tree.hpp"

namespace fedhpc {

/// pFedGP: I. Achituve, A. Shamsian, A. Navon, G. Chechik, E. Fetaya, "Personalized Federated
/// Learning with Gaussian Processes", NeurIPS 2021, with all of a client's samples, or with
/// inducing points (pFedGP-IP-data); a baseline of sFedHP.
///
/// Clients share a network that embeds samples. Each has a Gaussian-process classifier of its own
/// on them, a tree of binary ones. Polya-Gamma variables omega make their likelihood Gaussian;
/// Gibbs chains draw these.
///
///   paper   code                           meaning
///   theta   shared_                        the embedding network: the model below its classifier
///   k       kernel of embeddings of length 1, a^2 exp(-||u - v||^2 / (2 l^2)); it is not learned
///   a^2     algorithm.outputscale
///   l       algorithm.lengthscale
///           algorithm.jitter               a constant on k's diagonal
///   omega   algorithm.draws                chains of a node's classifier in training
///           algorithm.gibbs_steps          their steps
///           algorithm.test_draws           chains in evaluation
///           algorithm.test_gibbs_steps     their steps
///   X, X*   algorithm.scored_share         this share of a node's samples of either side is scored
///                                          by a classifier that knows the others
///   X-bar   algorithm.inducing_points      for each class, embeddings that travel behind theta; 0:
///                                          there is no X-bar, and samples alone are known
///           algorithm.inducing_deviation   of their first values, which are normals
///           algorithm.averaging            of probabilities, or their logarithms (log)
///           algorithm.clip                 longest gradient of theta; 0: any
///   eta     train.lr
///
/// A local step minimises the predictive loss: the mean of -log P(y* | X, y) over the scored
/// samples, summed over the nodes of the client's tree. Its gradient goes through the kernel at
/// fixed omega. With train.batch_size = 0 a step has all of a client's samples, as in the authors'
/// program, whose inner steps are train.local_epochs. Each node parts its classes by 2-means of
/// their mean embeddings at the received theta, so the tree is new in every round.
///
/// With inducing points a step scores all samples, by classifiers that know X-bar alone. Its
/// gradient moves X-bar as it moves theta. X-bar travels with theta and is averaged with it. A
/// client takes the points of its own classes: the others only decay. As there are as many of every
/// class, probabilities are weighed by P(side) / Q(side), of the client's samples and of what the
/// classifier knows.
///
/// A client's own classifier knows all its training samples, embedded by theta, and the inducing
/// points; nothing else is scored. Classes that it has no sample of are never predicted; without
/// any sample all classes are alike. Nothing stays with clients but their samples: columns of the
/// models' classifier neither travel nor move, and those of /personal are the initial ones.
///
/// Choices and deviations:
/// - A probability is the mean of sigmoid(f). The authors' program takes exp(E log sigmoid(f)) for
///   one side and the rest for the other (averaging = log).
/// - 2-means starts from every pair of means; theirs from 50 draws. The lowest class goes left.
/// - Gradients of theta longer than algorithm.clip are shortened to it, as theirs are.
/// - In training their program leaves Q out, which is right where either side has as many classes.
/// - Their other variant, IP-compute, which only saves time, is not here.
/// - Clients weigh their samples; the authors' weigh equally (weighting = uniform).
/// - Omega hangs on (round, client, step, node, chain) alone. Every evaluation draws anew.
class PFedGP final : public Algorithm {
 public:
  Traits traits() const override {
    return {.models = Models::Shared, .reads_embeddings = true, .reads_labels = true};
  }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "body", shared_); }

 private:
  /// Joins the bodies of rows that travel into whole models [C, P].
  Rows whole(const Rows& shared) const;
  /// Views the inducing points of such rows, [C, I], in the same memory.
  Rows points_of(const Rows& shared) const;
  /// Joins what travels of these models [C, P] and inducing points [C, I].
  Rows shared_of(const Rows& models, const Rows& points) const;
  /// Views points [I] as values with classes.
  LabelledValues labelled(const Tensor& points) const;
  void add_inducing_points_();
  DrawKey key_of(std::int64_t client, std::int64_t round, std::int64_t pass) const;
  /// Shortens the gradients of the first `count` rows that are too long.
  void clip_(const Rows& gradients, std::int64_t count) const;

  GpTreeSettings settings_;
  std::int64_t points_per_class_ = 0;
  double points_deviation_ = 0.01;
  GibbsChains training_chains_{.draws = 20, .steps = 5};
  GibbsChains test_chains_{.draws = 30, .steps = 5};
  double clip_length_ = 50;
  AveragingOptions averaging_;
  ServerOptimizer server_;

  std::uint64_t seed_ = 0;
  std::unique_ptr<RowOptimizer> optimizer_;
  std::unique_ptr<RowOptimizer> points_optimizer_;
  std::unique_ptr<Codec> codec_;  // of uploads
  RowPart body_part_;
  std::int64_t classes_ = 0;
  std::int64_t width_ = 0;               // of embeddings
  LayoutPtr points_layout_;              // of I columns, none without inducing points
  std::vector<std::int64_t> points_of_;  // the class of each point
  Rows initial_;                         // [1, P]
  Rows shared_;                          // [1, d + I]  theta, X-bar
};

}  // namespace fedhpc
