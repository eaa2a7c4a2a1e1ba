#include "reference/network.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include "reference/nets.hpp"

namespace fedhpc::reference {

namespace {

Tensor logits(const Problem& problem, const Tensor& row, const Tensor& features, Use use,
              const Tensor& moved) {
  std::vector<std::int64_t> shape = problem.shape;
  shape.insert(shape.begin(), features.size(0));
  return testing::reference_logits(problem.model, *problem.layout, row, features.view(shape), use,
                                   moved);
}

}  // namespace

std::vector<std::size_t> trainable(const Problem& problem, Part part) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < problem.layout->fields().size(); ++i) {
    const Tag tags = problem.layout->fields()[i].tags;
    if (!has(tags, Tag::Trainable)) continue;
    if (part != Part::All && has(tags, Tag::Head) != (part == Part::Head)) continue;
    places.push_back(i);
  }
  return places;
}

LossAndGradient training_loss_(const Problem& problem, Parameters& parameters, const Client& client,
                               const std::vector<std::int64_t>& positions, Statistics statistics) {
  const Tensor index = at::tensor(positions, at::kLong);
  const Tensor row = flatten(parameters).requires_grad_(true);
  const Tensor moved = flatten(parameters);
  const Tensor scores = logits(problem, row, client.features.index_select(0, index), Use::Training,
                               statistics == Statistics::Move ? moved : Tensor());
  const Tensor loss = at::cross_entropy_loss(scores, client.labels.index_select(0, index));
  loss.backward();
  if (statistics == Statistics::Move) parameters = unflatten(moved, parameters);
  return {.loss = loss.item<double>(), .gradient = unflatten(row.grad(), parameters)};
}

double correct(const Problem& problem, const Parameters& parameters, const Client& samples) {
  if (samples.labels.size(0) == 0) return 0;
  const Tensor scores =
      logits(problem, flatten(parameters), samples.features, Use::Evaluation, Tensor());
  return scores.argmax(1).eq(samples.labels).sum().item().toDouble();
}

Parameters chosen(const Parameters& all, const std::vector<std::size_t>& places) {
  Parameters some;
  for (const std::size_t place : places) some.push_back(all[place]);
  return some;
}

}  // namespace fedhpc::reference
