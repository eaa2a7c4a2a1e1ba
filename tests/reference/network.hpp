#pragma once

#include <functional>

#include "reference/problem.hpp"

/// Any network of the registry, with convolutions and batch norm too.
namespace fedhpc::reference {

/// What a local training moves by gradients. The head is the last linear layer; running statistics
/// belong to the body, though gradients move them never.
enum class Part { All, Head, Body };

/// The places among the network's parameters that gradients move in a training of `part`.
std::vector<std::size_t> trainable(const Problem& problem, Part part = Part::All);

/// The columns of a flat model that gradients move, those of norms among them or not.
Tensor trainable_columns(const Problem& problem, bool norms = true);

/// What becomes of running statistics in training.
enum class Statistics { Stay, Move };

/// What the head sees of some samples, [n, E]: the logits of a network whose head passes its input
/// on. `row` and `moved` as of reference_logits.
Tensor embedding(const Problem& problem, const Tensor& row, const Tensor& features, Use use,
                 const Tensor& moved = {});

/// A term of a batch's loss that follows from what the head sees [n, E] of its features [n, D].
using EmbeddingTerm = std::function<Tensor(const Tensor& embedding, const Tensor& features)>;

/// Mean cross-entropy on some samples, normalised by their own statistics, with its gradient by
/// autograd, and that of a term that it does not count. That of running statistics is 0; `statistics`
/// says whether those of `parameters` move.
struct LossAndGradient {
  double loss = 0;
  Parameters gradient;
};
LossAndGradient training_loss_(const Problem& problem, Parameters& parameters, const Client& client,
                               const std::vector<std::int64_t>& positions, Statistics statistics,
                               const EmbeddingTerm& term = {});

/// The Hessian of that loss times `direction`, by differentiating twice.
Parameters hessian_product(const Problem& problem, const Parameters& parameters,
                           const Parameters& direction, const Client& client,
                           const std::vector<std::int64_t>& positions);

/// `weights` with the running statistics of `other`.
Parameters with_statistics(const Problem& problem, const Parameters& weights,
                           const Parameters& other);

/// How many of these samples the network puts into the right class.
double correct(const Problem& problem, const Parameters& parameters, const Client& samples);

/// The tensors at these places.
Parameters chosen(const Parameters& all, const std::vector<std::size_t>& places);

}  // namespace fedhpc::reference
