#include "reference/network.hpp"

#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

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

/// Mean cross-entropy of the network `row` on some samples in training.
Tensor mean_loss(const Problem& problem, const Tensor& row, const Client& client,
                 const std::vector<std::int64_t>& positions, const Tensor& moved = {}) {
  const Tensor index = at::tensor(positions, at::kLong);
  const Tensor scores =
      logits(problem, row, client.features.index_select(0, index), Use::Training, moved);
  return at::cross_entropy_loss(scores, client.labels.index_select(0, index));
}

}  // namespace

Tensor embedding(const Problem& problem, const Tensor& row, const Tensor& features, Use use,
                 const Tensor& moved) {
  Layout layout;
  const auto without_head = [&](const Tensor& whole) {
    std::vector<Tensor> parts;
    for (const Field& field : problem.layout->fields()) {
      if (!has(field.tags, Tag::Head)) parts.push_back(whole.narrow(0, field.offset, field.size));
    }
    return parts;
  };
  std::vector<Tensor> parts = without_head(row);
  for (const Field& field : problem.layout->fields()) {
    if (!has(field.tags, Tag::Head)) {
      layout.add(field.name, field.shape, field.fan_in, field.tags);
    } else if (field.shape.size() == 2) {
      const std::int64_t width = field.shape[1];
      layout.add(field.name, {width, width}, width, field.tags);
      parts.push_back(at::eye(width, at::kDouble).flatten());
    }
  }
  std::vector<std::int64_t> shape = problem.shape;
  shape.insert(shape.begin(), features.size(0));
  if (!moved.defined()) {
    return testing::reference_logits(problem.model, layout, at::cat(parts), features.view(shape),
                                     use);
  }
  const Tensor to_move = at::cat(without_head(moved));
  const Tensor embedded = testing::reference_logits(problem.model, layout, at::cat(parts),
                                                    features.view(shape), use, to_move);
  std::int64_t begin = 0;
  for (const Tensor& part : without_head(moved)) {
    part.copy_(to_move.narrow(0, begin, part.size(0)));
    begin += part.size(0);
  }
  return embedded;
}

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

Tensor trainable_columns(const Problem& problem, bool norms) {
  std::vector<Tensor> columns;
  for (const std::size_t place : trainable(problem)) {
    const Field& field = problem.layout->fields()[place];
    if (has(field.tags, Tag::Norm) && !norms) continue;
    columns.push_back(at::arange(field.offset, field.offset + field.size));
  }
  return at::cat(columns);
}

LossAndGradient training_loss_(const Problem& problem, Parameters& parameters, const Client& client,
                               const std::vector<std::int64_t>& positions, Statistics statistics,
                               const EmbeddingTerm& term) {
  const Tensor row = flatten(parameters).requires_grad_(true);
  const Tensor moved = flatten(parameters);
  const Tensor loss =
      mean_loss(problem, row, client, positions, statistics == Statistics::Move ? moved : Tensor());
  Tensor whole = loss;
  if (term) {
    const Tensor features = client.features.index_select(0, at::tensor(positions, at::kLong));
    whole = loss.add(term(embedding(problem, row, features, Use::Training), features));
  }
  whole.backward();
  if (statistics == Statistics::Move) parameters = unflatten(moved, parameters);
  return {.loss = loss.item<double>(), .gradient = unflatten(row.grad(), parameters)};
}

Parameters hessian_product(const Problem& problem, const Parameters& parameters,
                           const Parameters& direction, const Client& client,
                           const std::vector<std::int64_t>& positions) {
  const Tensor row = flatten(parameters).requires_grad_(true);
  const Tensor loss = mean_loss(problem, row, client, positions);
  const auto gradient = torch::autograd::grad({loss}, {row}, /*grad_outputs=*/{},
                                              /*retain_graph=*/true, /*create_graph=*/true);
  return unflatten(torch::autograd::grad(gradient, {row}, {flatten(direction)}).front(),
                   parameters);
}

Parameters with_statistics(const Problem& problem, const Parameters& weights,
                           const Parameters& other) {
  Parameters both = other;
  for (const std::size_t place : trainable(problem)) both[place] = weights[place];
  return both;
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
