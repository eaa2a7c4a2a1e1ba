#include <array>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fedhpc/models/description.hpp"

namespace fedhpc {
namespace {

constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kChannels = 4;
constexpr std::int64_t kValues = 20;
const std::vector<std::int64_t> kClients{7, 0, 2, 900};

/// A linear layer, and dropout as layer 2.
std::unique_ptr<Model> model_with(const std::string& dropout) {
  ModelDescription description{.lines = {}};
  for (const std::string& line :
       {std::string("input shape=4,5"), std::string("linear out=5 inputs=0 parameters=weight"),
        dropout + " inputs=1"}) {
    description.add(line_of(line));
  }
  return build_model(description, "net.h5");
}

LayerDraws draws_of(const std::vector<std::int64_t>& clients) {
  return {.seed = 5, .round = 3, .pass = 1, .step = 9, .call = 2, .clients = clients};
}

/// The factors of `units` values a sample for a client's batch [B, units], as docs/semantics.md
/// says.
Tensor factors(std::int64_t client, double p, std::int64_t units) {
  Draws draws({.seed = 5,
               .purpose = Purpose::Layers,
               .pass = 1,
               .epoch = 9,
               .client = static_cast<std::uint64_t>(client) | std::uint64_t{2} << 32 |
                         std::uint64_t{2} << 48,
               .round = 3});
  const Tensor all = at::empty({kBatch, units}, at::kDouble);
  std::uint64_t word = 0;
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    word = i % 2 == 0 ? draws.raw() : word >> 32;
    const double share = static_cast<double>(word & 0xFFFFFFFF) / 0x1.0p32;
    all.data_ptr<double>()[i] = share >= p ? 1 / (1 - p) : 0;
  }
  return all;
}

void expect_masks(const std::string& line, double p, std::int64_t units) {
  const auto model = model_with(line);
  EXPECT_TRUE(model->draws());
  const auto count = static_cast<std::int64_t>(kClients.size());
  const Tensor rows = at::randn({count, model->layout()->size()}, at::kDouble);
  const Tensor input = at::randn({count, kBatch, kValues}, at::kDouble);
  const Tensor dy = at::randn({count, kBatch, kValues}, at::kDouble);
  Activations whole = model->make_activations(count, kBatch, at::kDouble, Use::Training);
  whole.draws = draws_of(kClients);
  const Activations still = model->make_activations(count, kBatch, at::kDouble, Use::Evaluation);
  still.input().copy_(input);
  model->forward(rows, still);
  for (const auto& [first, some, batch] :
       std::vector<std::array<std::int64_t, 3>>{{0, count, kBatch}, {1, 2, kBatch}, {3, 1, 2}}) {
    const Activations part = whole.narrow(first, some, batch);
    const auto part_of = [&](const Tensor& stack) {
      return stack.narrow(0, first, some).narrow(1, 0, batch);
    };
    part.input().copy_(part_of(input));
    model->forward(rows.narrow(0, first, some), part);
    const Tensor values = part.logits().clone();
    part.logit_gradient().copy_(part_of(dy));
    model->backward(rows.narrow(0, first, some), part, {.rows = at::empty_like(rows)});
    for (std::int64_t c = 0; c < some; ++c) {
      const Tensor factor = factors(kClients[static_cast<std::size_t>(first + c)], p, units)
                                .unsqueeze(2)
                                .expand({-1, -1, kValues / units})
                                .reshape({kBatch, kValues})
                                .narrow(0, 0, batch);
      const Tensor y = part_of(still.logits())[c];
      EXPECT_LT(values[c].sub(y.mul(factor)).abs().max().item<double>(), 1e-13);
      const Tensor dx = part_of(dy)[c].mul(factor);
      EXPECT_LT(part.gradients[1][c].sub(dx).abs().max().item<double>(), 1e-13);
    }
  }
}

TEST(Dropout, DrawsAsDocumented) {
  expect_masks("dropout p=0.3", 0.3, kValues);
  expect_masks("dropout p=0.5 channels=1", 0.5, kChannels);
}

TEST(Dropout, KeepsTheShareItSays) {
  for (const double p : {0.1, 0.5, 0.8}) {
    const auto model = model_with(concat("dropout p=", p));
    const std::vector<std::int64_t> clients{1, 2};
    Activations a = model->make_activations(2, 2000, at::kFloat, Use::Training);
    a.draws = draws_of(clients);
    a.input().fill_(1);
    model->forward(at::ones({2, model->layout()->size()}, at::kFloat), a);
    for (std::int64_t c = 0; c < 2; ++c) {
      const double kept = a.logits()[c].ne(0).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(kept, 1 - p, 5 * std::sqrt(p * (1 - p) / (2000 * kValues)));
    }
    EXPECT_FALSE(a.logits()[0].equal(a.logits()[1]));
  }
}

TEST(Dropout, TakesEveryProbability) {
  EXPECT_FALSE(model_with("dropout p=0")->draws());
  const auto model = model_with("dropout p=1");
  Activations a = model->make_activations(4, kBatch, at::kDouble, Use::Training);
  a.draws = draws_of(kClients);
  a.input().fill_(1);
  model->forward(at::ones({4, model->layout()->size()}, at::kDouble), a);
  EXPECT_TRUE(a.logits().eq(0).all().item<bool>());
}

}  // namespace
}  // namespace fedhpc
