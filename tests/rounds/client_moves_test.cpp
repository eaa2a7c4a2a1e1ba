#include "fedhpc/rounds/client_moves.hpp"

#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/data/options.hpp"

namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 12;
constexpr std::int64_t kColumns = 5;

LayoutPtr layout() {
  static const LayoutPtr of_all = [] {
    auto layout = std::make_shared<Layout>();
    layout->add("w", {kColumns}, kColumns, Tag::Trainable);
    return layout;
  }();
  return of_all;
}

/// Pixels that tell their sample, labels that do.
class Numbered final : public Dataset {
 public:
  explicit Numbered(bool on_demand) : on_demand_(on_demand) {}
  std::vector<std::int64_t> shape() const override { return {3}; }
  std::int64_t classes() const override { return 200; }
  std::int64_t num_train() const override { return 200; }
  std::int64_t num_test() const override { return 0; }
  bool on_demand() const override { return on_demand_; }
  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> all(200);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, 3}, at::kByte), at::empty({count}, at::kLong)};
    for (std::int64_t i = 0; i < count; ++i) {
      samples.features[i].fill_(ids[i]);
      samples.labels[i].fill_(ids[i]);
    }
    return samples;
  }

 private:
  bool on_demand_;
};

/// Client c has c + 1 training samples and two test samples; those of one rank more than others.
Partition ragged() {
  Partition partition;
  std::int64_t next = 0;
  for (std::int64_t client = 0; client < kClients; ++client) {
    std::vector<std::int64_t> train(static_cast<std::size_t>(client + 1));
    std::iota(train.begin(), train.end(), next);
    next += client + 1;
    partition.train.append(train);
    partition.test.append(std::vector<std::int64_t>{next, next + 1});
    next += 2;
  }
  return partition;
}

enum class By { Memory, Messages, Demand };

class ClientMovesTest : public ::testing::TestWithParam<By> {
 protected:
  std::unique_ptr<Communicator> world_ = world_communicator(60);
  Numbered data_{GetParam() == By::Demand};
  Partition partition_ = ragged();
  Placement placement_{edges_of_clients(kClients, 0, {}), 0, world_->size()};
  Shard shard_{data_,
               partition_,
               placement_.clients_of_rank(world_->rank()),
               Standardize::None,
               DType::Float32,
               GetParam() == By::Demand ? -1 : Shard::kHeldBytes,
               Shard::Load::Later};
  std::unique_ptr<SharedMemory> shared_ =
      GetParam() == By::Memory ? world_->share(shard_.packed_bytes(shard_.clients())) : nullptr;
  ClientStore store_{placement_.clients_of_rank(world_->rank())};
  TrainOptions training_;
  Stragglers stragglers_{training_, /*seed=*/0};
  std::unique_ptr<ClientMoves> moves_;

  void SetUp() override {
    shard_.load_(data_, shared_ ? shared_->own() : nullptr);
    if (shared_) shared_->written();
    store_.rows("row", {at::full({1, kColumns}, -1, at::kFloat), layout()});
    store_.scalars("number", -1);
    training_.local_epochs = 1;
    moves_ = std::make_unique<ClientMoves>(
        ClientMoves::Parts{*world_, placement_, partition_, training_, stragglers_, shard_, store_,
                           shared_.get()},
        MovingRules{.count_costs = false});
  }

  /// What round t writes of a client.
  static Rows row_of(std::int64_t client, std::int64_t t) {
    return {at::full({1, kColumns}, static_cast<double>(100 * t + client), at::kFloat), layout()};
  }

  static double number_of(std::int64_t t) { return 7 * static_cast<double>(t); }

  std::vector<std::int64_t> labels_of(std::int64_t client) {
    const std::int64_t count = partition_.train.count(client);
    const Tensor features = at::empty({1, count, 3}, at::kFloat);
    const Tensor labels = at::empty({1, count}, at::kLong);
    std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
    std::iota(positions.begin(), positions.end(), 0);
    const Shard made = shard_.on_demand() ? shard_.in_hand({client}) : shard_;
    made.gather_train(client, positions, 0, features, labels);
    EXPECT_TRUE(features.select(2, 2).to(at::kLong).equal(labels));
    const auto* values = labels.const_data_ptr<std::int64_t>();
    return {values, values + count};
  }
};

TEST_P(ClientMovesTest, GuestsComeWithAllTheyHaveAndGoHomeWithIt) {
  std::int64_t trained_away = 0;
  std::map<std::int64_t, std::int64_t> last;  // round in which a client was drawn, by client
  StoredRows& rows = store_.rows("row");
  ScalarColumn& numbers = store_.scalars("number");
  for (std::int64_t t = 1; t <= 6; ++t) {
    std::vector<std::int64_t> cohort;
    for (std::int64_t client = 0; client < kClients; ++client) {
      if ((client + t) % 3 != 0) cohort.push_back(client);
    }
    moves_->begin(t, cohort, t % 2 == 0 ? Shard::Packed::All : Shard::Packed::Training);
    moves_->arrive();
    trained_away += static_cast<std::int64_t>(moves_->moves().size());
    std::vector<std::int64_t> here = moves_->guests();
    for (const std::int64_t client : shard_.clients()) {
      const bool drawn = std::ranges::binary_search(cohort, client);
      if (drawn && !moves_->is_away(client)) here.push_back(client);
    }
    for (const std::int64_t client : here) {
      const std::span<const std::int64_t> expected = partition_.train.of(client);
      EXPECT_EQ(labels_of(client), std::vector<std::int64_t>(expected.begin(), expected.end()));
      EXPECT_EQ(shard_.train_count(client), client + 1);
      EXPECT_EQ(rows.written(client), last.contains(client)) << client << " in round " << t;
      const std::vector<std::int64_t> one{client};
      const Rows before = last.contains(client) ? row_of(client, last[client]) : rows.initial();
      EXPECT_TRUE(rows.read(one).values.equal(before.values)) << client << " in round " << t;
      EXPECT_EQ(numbers.read(client), last.contains(client) ? number_of(last[client]) : -1);
      rows.write(one, row_of(client, t));
      numbers.write(client, number_of(t));
    }
    if (t % 2 == 0) {
      for (const std::int64_t guest : moves_->guests()) {
        EXPECT_EQ(shard_.test_count(guest), 2);
        const Shard& there = shard_.of(guest);
        const Tensor features = at::empty({2, 3}, at::kFloat);
        const Tensor labels = at::empty({2}, at::kLong);
        there.gather_test(there.test_begin(guest), there.test_begin(guest) + 2, features, labels);
        EXPECT_EQ(labels[1].item<std::int64_t>(), partition_.test.of(guest)[1]);
      }
    }
    for (const std::int64_t client : cohort) last[client] = t;
    moves_->go_home();
    EXPECT_TRUE(moves_->guests().empty());
    for (const std::int64_t client : rows.written_clients()) EXPECT_TRUE(shard_.holds(client));
    for (const std::int64_t client : shard_.clients()) {
      if (!last.contains(client)) continue;
      EXPECT_TRUE(rows.view(client).values.equal(row_of(client, last[client]).values)) << client;
      EXPECT_EQ(numbers.read(client), number_of(last[client]));
    }
  }
  EXPECT_EQ(trained_away > 0, world_->size() > 1);
  Tensor bytes = at::full({1}, moves_->lap_bytes(), at::kLong);
  world_->sum_(bytes);
  EXPECT_EQ(bytes.item<std::int64_t>() > 0, world_->size() > 1);
  EXPECT_EQ(moves_->lap_bytes(), 0);
}

TEST_P(ClientMovesTest, OnlyWhatIsNotSharedIsSent) {
  std::vector<std::int64_t> cohort(kClients);
  std::iota(cohort.begin(), cohort.end(), 0);
  moves_->begin(1, cohort, Shard::Packed::Training);
  std::int64_t samples = 0;
  std::int64_t away = 0;
  for (const Move& move : moves_->moves()) {
    if (move.from != world_->rank()) continue;
    ++away;
    samples += partition_.train.count(move.client) * (3 + 8);
  }
  moves_->go_home();
  Tensor sums = at::empty({3}, at::kLong);
  sums[0].fill_(moves_->lap_bytes());
  sums[1].fill_(samples);
  sums[2].fill_(away);
  world_->sum_(sums);
  const auto* values = sums.const_data_ptr<std::int64_t>();
  // Nothing is written yet: there and back a word each for the row and the number of a client.
  const std::int64_t kept = 2 * 2 * values[2];
  if (GetParam() != By::Messages) {
    EXPECT_EQ(values[0], kept);
  } else {  // and stacks that begin at lines of 64 bytes
    EXPECT_GE(values[0], kept + values[1]);
    EXPECT_LE(values[0], kept + values[1] + values[2] * 2 * 64);
  }
}

TEST_P(ClientMovesTest, ARankThatIsLostInAMoveIsNoticed) {
  if (world_->size() == 1) GTEST_SKIP() << "nobody to wait for";
  const auto hasty = world_communicator(1);
  ClientMoves moves(
      {*hasty, placement_, partition_, training_, stragglers_, shard_, store_, shared_.get()},
      MovingRules{.count_costs = false});
  if (hasty->rank() == 0) {  // it has the least work, and gets guests
    std::vector<std::int64_t> cohort(kClients);
    std::iota(cohort.begin(), cohort.end(), 0);
    hasty->place() = {.task = Place::Task::Training, .round = 17};
    moves.begin(1, cohort, Shard::Packed::Training);
    ASSERT_FALSE(moves.guests().empty());
    try {
      moves.arrive();
      ADD_FAILURE() << "guests came from ranks that have sent nobody";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("no progress in a move of clients for 1 s"), std::string::npos) << text;
      EXPECT_NE(text.find("moving clients between ranks in round 17"), std::string::npos) << text;
    }
  }
  world_->barrier();
}

INSTANTIATE_TEST_SUITE_P(Ways, ClientMovesTest,
                         ::testing::Values(By::Memory, By::Messages, By::Demand));

}  // namespace
}  // namespace fedhpc
