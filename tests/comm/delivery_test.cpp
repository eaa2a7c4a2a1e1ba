#include <cstring>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

namespace fedhpc {
namespace {

/// What rank `from` sends to rank `to`: any length, nothing now and then.
Tensor bytes_for(int from, int to) {
  const std::int64_t length = (from + to) % 3 == 0 ? 0 : 300'000 * (from + 1) + to;
  return at::arange(length, at::kLong).add(7 * from + to).to(at::kByte);
}

class DeliveryTest : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> world_ = world_communicator(60);
  const int rank_ = world_->rank();
  const int size_ = world_->size();
};

TEST_F(DeliveryTest, ParcelsComeWhileRanksWork) {
  for (int repetition = 0; repetition < 3; ++repetition) {
    std::vector<Parcel> outgoing;
    std::vector<int> senders;
    for (int other = size_ - 1; other >= 0; --other) {
      if (other == rank_) continue;
      outgoing.push_back({other, bytes_for(rank_, other)});
      senders.push_back(other);
    }
    const Traffic before = world_->traffic();
    const std::unique_ptr<Delivery> delivery = world_->deliver(outgoing, senders);
    for (int work = 0; work < repetition; ++work) delivery->advance();
    const std::vector<Tensor> received = delivery->finish();
    EXPECT_TRUE(delivery->advance());
    ASSERT_EQ(received.size(), senders.size());
    for (std::size_t s = 0; s < senders.size(); ++s) {
      EXPECT_TRUE(received[s].equal(bytes_for(senders[s], rank_))) << senders[s];
    }
    std::int64_t sent = 0;
    for (const Parcel& parcel : outgoing) sent += parcel.bytes.numel();
    EXPECT_EQ(world_->traffic().bytes - before.bytes, sent);
    EXPECT_EQ(world_->traffic().parcels - before.parcels, sent);
  }
}

TEST_F(DeliveryTest, WhoExchangesNothingWaitsForNobody) {
  // A ring in which the last rank is left out; it does not even call.
  if (rank_ == size_ - 1) return;
  const int ring = size_ - 1;
  std::vector<Parcel> outgoing;
  std::vector<int> senders;
  if (ring > 1) {
    outgoing.push_back({(rank_ + 1) % ring, bytes_for(rank_, (rank_ + 1) % ring)});
    senders.push_back((rank_ + ring - 1) % ring);
  }
  const std::vector<Tensor> received = world_->deliver(outgoing, senders)->finish();
  ASSERT_EQ(received.size(), senders.size());
  for (const Tensor& bytes : received) {
    EXPECT_TRUE(bytes.equal(bytes_for(senders.front(), rank_)));
  }
}

TEST_F(DeliveryTest, WaitsAreCounted) {
  if (size_ == 1) {
    EXPECT_EQ(world_->seconds_waited(), 0);
    return;
  }
  const double before = world_->seconds_waited();
  world_->barrier();
  EXPECT_GT(world_->seconds_waited(), before);
  const auto part = world_->split(0);
  part->barrier();
  EXPECT_EQ(part->seconds_waited(), world_->seconds_waited()) << "one count of all its parts";
}

TEST_F(DeliveryTest, RanksOfAHostReadEachOthersMemory) {
  const std::vector<int> hosts = world_->hosts();
  EXPECT_EQ(hosts, std::vector<int>(static_cast<std::size_t>(size_), 0)) << "one host here";
  const std::int64_t bytes = rank_ == 0 ? 0 : 100'000 + rank_;
  const std::unique_ptr<SharedMemory> memory = world_->share(bytes);
  if (size_ == 1) {
    EXPECT_EQ(memory, nullptr);
    return;
  }
  ASSERT_NE(memory, nullptr);
  std::memset(memory->own(), 10 + rank_, static_cast<std::size_t>(bytes));
  memory->written();
  for (int other = 1; other < size_; ++other) {
    const auto* there = static_cast<const unsigned char*>(memory->of(other));
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(there[0], 10 + other);
    EXPECT_EQ(there[100'000 + other - 1], 10 + other);
  }
  EXPECT_EQ(memory->of(size_), nullptr);
}

}  // namespace
}  // namespace fedhpc
