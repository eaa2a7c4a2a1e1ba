#include "fedhpc/data/batches.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

using Positions = std::vector<std::int64_t>;

Positions copy(std::span<const std::int64_t> batch) { return {batch.begin(), batch.end()}; }

/// The page's definition, written out: stable argsort of raw words, cut into batches.
std::vector<Positions> reference(const BatchPlan& plan, std::int64_t epochs) {
  std::vector<Positions> batches;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    Draws draws({.seed = plan.seed,
                 .purpose = Purpose::Batches,
                 .pass = static_cast<std::uint64_t>(plan.pass),
                 .epoch = static_cast<std::uint64_t>(epoch),
                 .client = static_cast<std::uint64_t>(plan.client),
                 .round = static_cast<std::uint64_t>(plan.round)});
    std::vector<std::uint64_t> words(static_cast<std::size_t>(plan.samples));
    for (std::uint64_t& word : words) word = draws.raw();
    Positions order(words.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return words[a] < words[b]; });
    for (std::int64_t begin = 0; begin < plan.samples; begin += plan.batch_size) {
      const std::int64_t end = std::min(begin + plan.batch_size, plan.samples);
      if (plan.singles == SingleBatches::Drop && end - begin == 1) continue;
      batches.emplace_back(order.begin() + begin, order.begin() + end);
    }
  }
  return batches;
}

// numpy: argsort(Philox(key=[7, 5], counter=[0, 1 << 32 | epoch, 4, 3]).random_raw(11),
// kind="stable")
TEST(BatchCursorTest, GivesTheBatchesOfNumpy) {
  BatchCursor cursor(
      {.seed = 7, .round = 3, .client = 4, .pass = 1, .samples = 11, .batch_size = 4});
  EXPECT_EQ(copy(cursor.next()), (Positions{4, 5, 10, 7}));
  EXPECT_EQ(copy(cursor.next()), (Positions{3, 0, 2, 1}));
  EXPECT_EQ(copy(cursor.next()), (Positions{9, 6, 8}));
  EXPECT_EQ(copy(cursor.next()), (Positions{2, 0, 9, 4}));
}

TEST(BatchCursorTest, APartOfTheSamplesIsTheStartOfThePermutation) {
  BatchPlan plan{.seed = 2, .round = 6, .client = 1, .samples = 13, .batch_size = 4};
  Positions order;  // of epoch 0
  for (const Positions& batch : reference(plan, 1)) {
    order.insert(order.end(), batch.begin(), batch.end());
  }
  for (const std::int64_t visited : {1, 3, 4, 5, 11, 12, 13}) {
    plan.visited = visited;
    for (const std::int64_t size : {4, 0}) {
      plan.batch_size = size;
      const auto batches = BatchCursor::num_batches_per_epoch(visited, size, SingleBatches::Keep);
      BatchCursor cursor(plan);
      Positions seen;
      for (std::int64_t b = 0; b < batches; ++b) {
        const Positions batch = copy(cursor.next());
        EXPECT_LE(static_cast<std::int64_t>(batch.size()), size == 0 ? visited : size);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      Positions expected(order.begin(), order.begin() + visited);
      // A full batch of all samples is in plain order.
      if (size == 0 && visited == 13) std::sort(expected.begin(), expected.end());
      EXPECT_EQ(seen, expected) << visited << " samples in batches of " << size;
      EXPECT_EQ(copy(cursor.next()).size(), size == 0 ? visited : std::min(size, visited));
    }
  }
  plan.visited = 14;
  EXPECT_THROW(BatchCursor{plan}, std::logic_error);
}

TEST(BatchCursorTest, FollowsTheDefinitionOverEpochs) {
  for (const SingleBatches singles : {SingleBatches::Keep, SingleBatches::Drop}) {
    for (std::int64_t n = 1; n <= 13; ++n) {
      for (const std::int64_t size : {1, 2, 3, 5, 13, 20}) {
        const BatchPlan plan{.seed = 2,
                             .round = 6,
                             .client = n,
                             .pass = 9,
                             .samples = n,
                             .batch_size = size,
                             .singles = singles};
        const std::vector<Positions> expected = reference(plan, 3);
        const auto count = static_cast<std::int64_t>(expected.size());
        ASSERT_EQ(BatchCursor::num_batches_per_epoch(n, size, singles) * 3, count);
        BatchCursor unknown(plan);
        for (const Positions& batch : expected) EXPECT_EQ(copy(unknown.next()), batch);
        for (std::int64_t max = 1; max <= count; ++max) {
          BatchPlan bounded_plan = plan;
          bounded_plan.max_batches = max;
          BatchCursor bounded(bounded_plan);
          for (std::int64_t i = 0; i < max; ++i) EXPECT_EQ(copy(bounded.next()), expected[i]);
          EXPECT_THROW(bounded.next(), std::logic_error);
        }
      }
    }
  }
}

TEST(BatchCursorTest, RoundClientPassAndSeedGiveOtherBatches) {
  const BatchPlan plan{
      .seed = 1, .round = 2, .client = 3, .pass = 4, .samples = 30, .batch_size = 9};
  const Positions first = copy(BatchCursor(plan).next());
  EXPECT_EQ(copy(BatchCursor(plan).next()), first);
  for (const auto change :
       {+[](BatchPlan& p) { p.seed = 9; }, +[](BatchPlan& p) { p.round = 9; },
        +[](BatchPlan& p) { p.client = 9; }, +[](BatchPlan& p) { p.pass = 9; }}) {
    BatchPlan other = plan;
    change(other);
    EXPECT_NE(copy(BatchCursor(other).next()), first);
  }
}

TEST(BatchCursorTest, AFullBatchIsAllSamplesInOrderEveryTime) {
  BatchCursor cursor({.seed = 1, .samples = 4, .batch_size = 0});
  EXPECT_EQ(copy(cursor.next()), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(copy(cursor.next()), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(4, 0, SingleBatches::Drop), 1);
}

TEST(BatchCursorTest, AClientMayHaveNoBatch) {
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(0, 0, SingleBatches::Keep), 0);
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(0, 5, SingleBatches::Keep), 0);
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(1, 0, SingleBatches::Drop), 0);
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(1, 5, SingleBatches::Drop), 0);
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(9, 1, SingleBatches::Drop), 0);
  EXPECT_EQ(BatchCursor::num_batches_per_epoch(1, 5, SingleBatches::Keep), 1);
  BatchCursor cursor({.samples = 1, .batch_size = 5, .singles = SingleBatches::Drop});
  EXPECT_THROW(cursor.next(), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
