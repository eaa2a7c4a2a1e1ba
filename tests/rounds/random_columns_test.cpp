#include "fedhpc/rounds/random_columns.hpp"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

using Clients = std::vector<std::int64_t>;

constexpr std::int64_t kTrainable = 11;
constexpr std::int64_t kBuffers = 3;

/// Buffers stand between trainable columns.
LayoutPtr small_layout() {
  auto layout = std::make_shared<Layout>();
  layout->add("a", {7}, 7, Tag::Trainable);
  layout->add("mean", {kBuffers}, kBuffers, Tag::Buffer);
  layout->add("b", {4}, 4, Tag::Trainable | Tag::Head);
  return layout;
}

LayoutPtr large_layout() {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {500}, 500, Tag::Trainable);
  return layout;
}

TEST(RandomColumns, ChoosesAFractionOfTheTrainableOnesAndAllBuffers) {
  const LayoutPtr layout = small_layout();
  const Clients clients{0, 1, 2, 3, 4, 5, 6, 7};
  // 11 f + 1/2 rounded down, at least 1
  const std::vector<std::pair<double, std::int64_t>> sizes{
      {1e-9, 1}, {0.1, 1}, {0.13, 1}, {0.14, 2}, {0.3, 3}, {0.5, 6}, {0.95, 10}, {1, 11}};
  for (const auto& [fraction, chosen] : sizes) {
    const RandomColumns columns(3, fraction, layout);
    const Tensor sent = columns.draw(clients, 1, Direction::Up);
    ASSERT_EQ(sent.scalar_type(), at::kBool);
    ASSERT_EQ(sent.sizes().vec(), (std::vector<std::int64_t>{8, kTrainable + kBuffers}));
    EXPECT_TRUE(sent.narrow(1, 7, kBuffers).all().item<bool>());
    for (std::int64_t c = 0; c < sent.size(0); ++c) {
      EXPECT_EQ(sent[c].sum().item<std::int64_t>(), chosen + kBuffers) << fraction;
    }
    EXPECT_EQ(columns.payload_bytes(at::kFloat), 4 * (chosen + kBuffers) + 8);
    EXPECT_EQ(columns.payload_bytes(at::kDouble), 8 * (chosen + kBuffers) + 8);
    EXPECT_DOUBLE_EQ(columns.inverse_fraction(),
                     static_cast<double>(kTrainable) / static_cast<double>(chosen));
  }
}

TEST(RandomColumns, FollowThePublishedFormula) {
  const RandomColumns columns(17, 0.4, small_layout());  // 4 of 11
  const Clients client{9};
  for (const auto& [direction, pass] : {std::pair{Direction::Down, 0U}, {Direction::Up, 1U}}) {
    const std::vector<std::int64_t> order = permutation(
        {.seed = 17, .purpose = Purpose::Codec, .pass = pass, .client = 9, .round = 5}, kTrainable);
    const Tensor sent = columns.draw(client, 5, direction)[0];
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::int64_t column = order[i] < 7 ? order[i] : order[i] + kBuffers;
      EXPECT_EQ(sent[column].item<bool>(), i < 4) << column;
    }
  }
}

TEST(RandomColumns, DifferByClientRoundDirectionAndSeed) {
  const RandomColumns columns(1, 0.5, large_layout());
  const Clients clients{4, 8};
  const Tensor sent = columns.draw(clients, 3, Direction::Up);
  EXPECT_FALSE(sent[0].equal(sent[1]));
  EXPECT_FALSE(columns.draw(clients, 4, Direction::Up)[0].equal(sent[0]));
  EXPECT_FALSE(columns.draw(clients, 3, Direction::Down)[0].equal(sent[0]));
  EXPECT_FALSE(
      RandomColumns(2, 0.5, large_layout()).draw(clients, 3, Direction::Up)[0].equal(sent[0]));
}

TEST(RandomColumns, AreTheSameAtBothEndsWhoeverElseIsDrawn) {
  const RandomColumns here(1, 0.5, large_layout());
  const RandomColumns there(1, 0.5, large_layout());
  const Tensor sent = here.draw(Clients{4, 8}, 3, Direction::Down);
  EXPECT_TRUE(here.draw(Clients{4, 8}, 3, Direction::Down).equal(sent));
  EXPECT_TRUE(there.draw(Clients{8, 2, 4}, 3, Direction::Down)[0].equal(sent[1]));
  EXPECT_TRUE(there.draw(Clients{8, 2, 4}, 3, Direction::Down)[2].equal(sent[0]));
  EXPECT_EQ(here.draw({}, 3, Direction::Down).size(0), 0);
}

TEST(RandomColumns, FavourNoColumn) {
  constexpr std::int64_t kClients = 4000;
  Clients clients(kClients);
  for (std::int64_t c = 0; c < kClients; ++c) clients[static_cast<std::size_t>(c)] = c;
  const RandomColumns columns(1, 0.3, small_layout());  // 3 of 11
  const Tensor counts = columns.draw(clients, 1, Direction::Up).sum(0);
  constexpr double kShare = 3.0 / kTrainable;
  const double deviation = std::sqrt(kClients * kShare * (1 - kShare));
  for (std::int64_t i = 0; i < counts.size(0); ++i) {
    if (i >= 7 && i < 7 + kBuffers) continue;
    EXPECT_NEAR(counts[i].item<double>(), kClients * kShare, 5 * deviation) << i;
  }
}

}  // namespace
}  // namespace fedhpc
