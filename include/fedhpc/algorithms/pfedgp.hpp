#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/math/gp_tree.hpp"

namespace fedhpc {

/// pFedGP: I. Achituve, A. Shamsian, A. Navon, G. Chechik, E. Fetaya, "Personalized Federated
/// Learning with Gaussian Processes", NeurIPS 2021, with all of a client's samples and without
/// inducing points; a baseline of sFedHP.
///
/// Clients share a network that embeds samples. Each has a Gaussian-process classifier of its own
/// on them: a tree of binary ones, whose likelihood is made Gaussian by Polya-Gamma variables omega
/// that are drawn by Gibbs chains.
///
///   paper   here                     meaning
///   theta   body_                    the embedding network: the model below its classifier
///   k       algorithm.outputscale,   a^2 exp(-||u - v||^2 / (2 l^2)) of embeddings of length 1,
///           .lengthscale, .jitter    with a constant on the diagonal; none of them learned
///   omega   algorithm.draws,         chains of a node's classifier in training, and their steps;
///           .gibbs_steps             test_draws and test_gibbs_steps are those in evaluation
///   X, X*   algorithm.scored_share   this share of a node's samples of either side is scored by a
///                                    classifier that knows the others
///   eta     train.lr
///
/// A local step minimises the predictive loss: the mean of -log P(y* | X, y) over the scored
/// samples, summed over the nodes of the client's tree, by its gradient through the kernel at fixed
/// omega. With train.batch_size = 0 a step has all of a client's samples, as in the authors'
/// program, whose inner steps are train.local_epochs. Each node parts its classes by 2-means of
/// their mean embeddings at the received theta, so the tree is new in every round.
///
/// A client's own classifier knows all its training samples, embedded by theta; nothing else is
/// scored. Classes that it has no sample of are never predicted; without any sample all classes are
/// alike. Nothing stays with clients but their samples: columns of the models' classifier neither
/// travel nor move, and those of /personal are the initial ones.
///
/// Choices and deviations:
/// - A probability is the mean of sigmoid(f). The authors' program takes exp(E log sigmoid(f)) for
///   one side and the rest for the other (averaging = log).
/// - 2-means starts from every pair of means; theirs from 50 draws. The lowest class goes left.
/// - Gradients longer than algorithm.clip are shortened to it, as theirs are.
/// - Clients weigh their samples; the authors' weigh equally (weighting = uniform).
/// - Omega hangs on (round, client, step, node, chain) alone. Every evaluation draws anew.
class PFedGP final : public Algorithm {
 public:
  Models models() const override { return Models::Shared; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  RowsInHand rows_in_hand() const override;
  bool can_leave_rounds() const override { return true; }
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  /// Whole models [C, P] with these bodies [C, d].
  Rows whole(const Rows& bodies) const;
  DrawKey key_of(std::int64_t client, std::int64_t round, std::int64_t pass) const;
  /// Shortens the gradients of the first `count` rows that are too long.
  void clip_(const Rows& gradients, std::int64_t count) const;

  GpTreeSettings settings_;
  GibbsChains training_chains_{.draws = 20, .steps = 5};
  GibbsChains test_chains_{.draws = 30, .steps = 5};
  double clip_length_ = 50;
  AveragingOptions averaging_;

  std::uint64_t seed_ = 0;
  std::unique_ptr<RowOptimizer> optimizer_;
  std::unique_ptr<Codec> codec_;  // of uploads
  RowPart body_part_;
  std::int64_t classes_ = 0;
  Rows initial_;  // [1, P]
  Rows body_;     // [1, d]  theta
};

}  // namespace fedhpc
