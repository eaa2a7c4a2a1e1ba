#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// pFedGraph: the server infers from sample sizes and from how alike models have moved who works
/// with whom, and mixes a model for every client.
///
/// R. Ye, Z. Ni, F. Wu, S. Chen, Y. Wang: "Personalized Federated Learning with Inferred
/// Collaboration Graphs", ICML 2023. Per round, with the participants j and their sizes p_j, which
/// sum to 1:
///
///   theta_i <- local training from u_i on F_i(theta) - lambda cos(theta, u_i)    sent
///   c_ij     = cos(theta_i - theta^0, theta_j - theta^0)
///   w_i      = argmin over the simplex of  alpha ||w - p||^2 - sum_j w_j c_ij
///   u_i     <- sum_j w_ij theta_j                       at the server
///
/// The problem of w_i is alpha ||w - (p + c_i / (2 alpha))||^2 but for a constant. So w_i is that
/// point's projection to the simplex, found exactly.
///
///   paper     code                 meaning; limit case
///   theta_i   personal_            the client's own model, as it was trained last
///   u_i       clouds_              what client i starts from next; theta^0, the initial model, at
///                                  first
///   w         graph_of             the collaboration graph, [S, S]
///   alpha     algorithm.alpha      large: w_i = p, and with lambda = 0 and all clients FedAvg;
///                                  near 0: w_i holds the most alike alone, as a rule client i
///   lambda    algorithm.lambda     0: u_i is only where local training starts
///   (c_ij)    algorithm.alike      cosines above it count as 1; 1: none does
///   (own)     algorithm.evaluate   trained: theta_i is scored; received: u_i
///
/// The server keeps u_i and sends it when client i takes part again. Scored is theta_i, by
/// algorithm.evaluate = received u_i as it would be received. What u_i of participants scored
/// before they trained is the series reception_accuracy. Cosines and lengths are over the trainable
/// columns; batch-norm statistics are mixed like parameters. The cosine of a model that has not
/// moved is 0; one that is not finite has none. Clients without training samples do not count and
/// keep their u_i. train_loss is without the term; train.clip_norm takes the length of both
/// gradients.
///
/// Readings, and the authors' program (docs/methods/pfedgraph.md):
/// - The term draws theta towards u_i. The program adds its cosine to the loss, which drives them
///   apart: algorithm.lambda below 0.
/// - A client has the term from its second participation on, as in the program.
/// - algorithm.alike: cosines above it count as 1. The program's is 0.9; 1, the default, is none.
class PFedGraph final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Personal, .can_leave_rounds = false}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor&) override {}  // all of it lies with the clients

  /// Returns w [S, S] float64 from c [S, S], which may hold NaN, and sizes [S] of any sum above 0.
  static Tensor graph_of(const Tensor& cosines, const Tensor& sizes, double alpha, double alike);

 private:
  /// Trains theta_i from u_i, `received` [C, P].
  Rows client_update(Block& block, const Rows& received);
  /// u_i / ||u_i|| of the u_i that are `received`, [C, P]; 0 for clients that have none of their
  /// own yet.
  Rows directions_of(const Rows& received, std::span<const std::int64_t> clients) const;
  /// Adds the gradient of -lambda cos(theta, u_i); rows of clients with a batch.
  void add_term(const Rows& gradient, const Rows& model, const Rows& direction) const;
  void note(Round& round, const Tensor& graph) const;

  enum class Evaluated { Trained, Received };

  double alpha_ = 0.8;
  double lambda_ = 0.01;
  double alike_ = 1;
  Evaluated evaluated_ = Evaluated::Trained;
  AveragingOptions averaging_;
  std::unique_ptr<Codec> codec_;  // of uploads
  std::unique_ptr<RowOptimizer> optimizer_;
  StoredRows* clouds_ = nullptr;    // [clients of this rank, P]
  StoredRows* personal_ = nullptr;  // [the same]; null: nobody asks for it
};

}  // namespace fedhpc
