#pragma once

#include <functional>

#include "reference/network.hpp"

namespace fedhpc::reference {

/// What a method leaves.
struct Outcome {
  Tensor global;                   // [P] float64
  std::vector<double> train_loss;  // per round
};

/// A client's model after local training.
struct Trained {
  Parameters parameters;
  double loss = 0;     ///< sum of batch loss x batch size
  double samples = 0;  ///< sum of batch sizes

  void count(double batch_loss, std::size_t batch_size);
};

/// gradient + lambda (parameters - centre): the gradient with the term lambda/2 ||. - centre||^2.
Parameters pulled(const Parameters& gradient, const Parameters& parameters,
                  const Parameters& centre, double lambda);

/// A term of the loss that follows from what gradients move, one after the other: [n] -> a number.
using ParameterTerm = std::function<Tensor(const Tensor& moving)>;

/// A local training, but for whose it is and where it starts.
struct Training {
  std::int64_t pass = 0;
  Purpose purpose = Purpose::Batches;
  double mu = 0;                       ///< of the term mu/2 ||w - centre||^2
  const Parameters* centre = nullptr;  ///< null: where the training starts
  Optimizer* optimizer = nullptr;      ///< null: a fresh one
  Part part = Part::All;               ///< the head's training leaves running statistics alone
  EmbeddingTerm term{};                ///< added to every batch's loss
  ParameterTerm parameter_term{};      ///< the same
};

/// Trains client k from `start` with a fresh optimizer.
Trained train(const Problem& problem, std::int64_t k, std::int64_t round, const Training& training,
              const Parameters& start);

/// Trains client k from `start` on the batches of (round, pass), with mu (w - start) added to every
/// gradient.
Trained train(const Problem& problem, std::int64_t k, std::int64_t round, std::int64_t pass,
              const Parameters& start, double mu);

/// The weight of client k in a mean: its samples, or as the problem says their batches,
/// or 1 if it has any.
double weight_of(const Problem& problem, std::int64_t k);

/// A weighted mean of models.
class Average {
 public:
  void add(const Parameters& parameters, double weight);
  double weight() const { return weight_; }
  /// The mean, or `otherwise` when nothing was added that weighs anything.
  Parameters mean_or(const Parameters& otherwise) const;

 private:
  Parameters sum_;
  double weight_ = 0;
};

/// T rounds in which every client of the cohort trains from the global model with the proximal term
/// mu/2 ||w - w_t||^2 and the server takes the weighted mean.
Outcome averaging_rounds(const Problem& problem, double mu);

/// The mean data loss of a round.
class RoundLoss {
 public:
  void add(const Trained& trained);
  double mean() const { return loss_ / samples_; }

 private:
  double loss_ = 0;
  double samples_ = 0;
};

}  // namespace fedhpc::reference
