#pragma once

#include "reference/problem.hpp"

/// Any network of the registry, with convolutions and batch norm too.
namespace fedhpc::reference {

/// What a local training moves by gradients. The head is the last linear layer; running statistics
/// belong to the body, though gradients move them never.
enum class Part { All, Head, Body };

/// The places among the network's parameters that gradients move in a training of `part`.
std::vector<std::size_t> trainable(const Problem& problem, Part part = Part::All);

/// What becomes of running statistics in training.
enum class Statistics { Stay, Move };

/// Mean cross-entropy on some samples, normalised by their own statistics, with its gradient by
/// autograd. Running statistics have none; `statistics` says whether those of `parameters` move.
LossAndGradient training_loss_(const Problem& problem, Parameters& parameters, const Client& client,
                               const std::vector<std::int64_t>& positions, Statistics statistics);

/// How many of these samples the network puts into the right class.
double correct(const Problem& problem, const Parameters& parameters, const Client& samples);

/// The tensors at these places.
Parameters chosen(const Parameters& all, const std::vector<std::size_t>& places);

}  // namespace fedhpc::reference
