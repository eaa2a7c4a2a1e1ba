#include "reference/sparse_fedavg_reference.hpp"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace fedhpc::reference {

namespace {

enum class Direction : std::uint64_t { Down = 0, Up = 1 };

/// [P] true where a coordinate travels: running statistics always do.
Tensor mask(const Problem& problem, std::int64_t k, std::int64_t round, Direction direction,
            double fraction, const Tensor& model) {
  const DrawKey key{.seed = problem.seed,
                    .purpose = Purpose::Codec,
                    .pass = static_cast<std::uint64_t>(direction),
                    .client = static_cast<std::uint64_t>(k),
                    .round = static_cast<std::uint64_t>(round)};
  const Tensor columns = trainable_columns(problem);
  const Tensor sent = at::tensor(drawn(key, columns.numel(), fraction), at::kLong);
  return at::ones_like(model, at::kBool)
      .index_fill(0, columns, false)
      .index_fill(0, columns.index_select(0, sent), true);
}

/// What arrives of a model where nothing stands in for what was not sent.
Tensor arrived(const Problem& problem, const Tensor& model, const Tensor& mask, Unsent unsent) {
  const Tensor columns = trainable_columns(problem);
  const Tensor sent = mask.index_select(0, columns);
  const double scale =
      unsent == Unsent::Rescale ? static_cast<double>(sent.numel()) / sent.sum().item<double>() : 1;
  return model.mul(mask).index_copy(0, columns,
                                    model.index_select(0, columns).mul(sent).mul(scale));
}

}  // namespace

Outcome sparse_fedavg(const Problem& problem, double fraction, Unsent unsent) {
  const bool keep = unsent == Unsent::Keep;
  Outcome outcome;
  Tensor w = flatten(problem.initial);
  std::vector<Tensor> held(problem.clients.size(), w);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(w);
    Tensor weight = at::zeros_like(w);  // of those whose value counts, per coordinate
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Tensor& w_k = held[static_cast<std::size_t>(k)];
      const Tensor down = mask(problem, k, t, Direction::Down, fraction, w);
      w_k = keep ? at::where(down, w, w_k) : arrived(problem, w, down, unsent);
      const Trained trained =
          train(problem, k, t, /*pass=*/0, unflatten(w_k, problem.initial), /*mu=*/0);
      w_k = flatten(trained.parameters);
      const Tensor up = mask(problem, k, t, Direction::Up, fraction, w);
      const double p_k = weight_of(problem, k);
      sum = sum.add(arrived(problem, w_k, up, unsent), p_k);
      weight = weight.add(keep ? up.to(w.scalar_type()) : at::ones_like(w), p_k);
      loss.add(trained);
    }
    w = at::where(weight.gt(0), sum.div(weight), w);
    outcome.train_loss.push_back(loss.mean());
  }
  outcome.global = w;
  return outcome;
}

}  // namespace fedhpc::reference
