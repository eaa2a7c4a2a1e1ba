#include "fedhpc/comm/device_communicator.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "comm/fake_gpu_library.hpp"
#include "comm/nccl_alone.hpp"

namespace fedhpc {
namespace {

class DeviceCommunicatorTest : public ::testing::Test {
 protected:
  DeviceCommunicatorTest() {
    const auto world = world_communicator(60);
    rank_ = world->rank();
    size_ = world->size();
    run_log().set_rank(rank_, host_name());
    library_.cards.clear();
    for (int r = 0; r < size_; ++r) library_.cards.push_back(concat("card ", r));
  }

  /// As the program has it; but a rank alone has NCCL too.
  std::unique_ptr<Communicator> make(double timeout_seconds = 60) {
    std::unique_ptr<Communicator> made =
        device_communicator(world_communicator(timeout_seconds), library_);
    if (size_ > 1) return made;
    return nccl_alone(world_communicator(timeout_seconds), library_);
  }

  /// The message with which `work` ends.
  template <typename Work>
  static std::string error_of(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  FakeGpuLibrary library_;
  int rank_ = 0;
  int size_ = 1;
};

TEST_F(DeviceCommunicatorTest, GivesEveryRankItsDevice) {
  {
    ::testing::internal::CaptureStderr();
    const auto world = make();
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(library_.device, rank_);
    EXPECT_EQ(library_.open_comms, 1);
  }
  // Everything is given back, and NCCL's communicator in good order.
  EXPECT_EQ(library_.destroyed, 1);
  EXPECT_EQ(library_.aborted, 0);
  EXPECT_EQ(library_.open_comms, 0);
  EXPECT_EQ(library_.open_streams, 0);
  EXPECT_EQ(library_.open_events, 0);
}

TEST_F(DeviceCommunicatorTest, OneRankAloneNeedsNoNccl) {
  if (size_ > 1) GTEST_SKIP() << "there are others";
  library_.device = -1;
  const auto world = device_communicator(world_communicator(60), library_);
  EXPECT_EQ(library_.device, 0);
  EXPECT_EQ(library_.open_comms, 0);
  library_.hangs = true;
  Tensor values = at::full({3}, 1, at::kFloat);
  world->sum_(values);
  EXPECT_TRUE(values.equal(at::full({3}, 1, at::kFloat)));
}

TEST_F(DeviceCommunicatorTest, TakesTheOneDeviceALauncherLeaves) {
  library_.cards = {concat("card ", rank_)};
  const auto world = make();
  EXPECT_EQ(library_.device, 0);
  EXPECT_EQ(library_.open_comms, 1);
}

TEST_F(DeviceCommunicatorTest, GoesByTheHostWhereRanksShareACard) {
  if (size_ == 1) GTEST_SKIP() << "one rank shares with nobody";
  library_.cards = {"only card"};
  ::testing::internal::CaptureStderr();
  const auto world = make();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(library_.open_comms, 0);
  const std::string warning = "fedhpc: warning: ranks 0 and 1 share a GPU of " + host_name();
  EXPECT_EQ(said.substr(0, warning.size()), rank_ == 0 ? warning : "") << said;
  Tensor values = at::full({5}, 1, at::kDouble);
  world->sum_(values);
  EXPECT_TRUE(values.equal(at::full({5}, size_, at::kDouble)));
  EXPECT_EQ(library_.copies, 2);  // there and back
}

TEST_F(DeviceCommunicatorTest, EveryRankLearnsOfOneWithoutADevice) {
  if (rank_ == size_ - 1) library_.cards.clear();
  const std::string text = error_of([&] { device_communicator(world_communicator(60), library_); });
  EXPECT_EQ(text, concat("rank ", size_ - 1, " on ", host_name(), ": no CUDA device"));
}

TEST_F(DeviceCommunicatorTest, WaitsForWhatFillsATensor) {
  const auto world = make();
  Tensor values = at::zeros({1000}, at::kFloat);
  // To be there only after NCCL's stream has been looked at a few times.
  library_.enqueue(20, [values] { values.fill_(1); });
  world->sum_(values);
  EXPECT_TRUE(values.equal(at::full({1000}, size_, at::kFloat)));
}

TEST_F(DeviceCommunicatorTest, TensorsOfTheHostGoByMpi) {
  const auto world = make();
  library_.is_on_device = [](const Tensor&) { return false; };
  library_.hangs = true;
  Tensor values = at::full({3}, 1, at::kLong);
  world->sum_(values);
  EXPECT_TRUE(values.equal(at::full({3}, size_, at::kLong)));
  EXPECT_EQ(world->all_gather(values).size(0), 3 * size_);
  EXPECT_EQ(world->all_texts("x").size(), static_cast<std::size_t>(size_));
  library_.hangs = false;
}

TEST_F(DeviceCommunicatorTest, SplitsAsOftenAsAsked) {
  const auto world = make();
  {
    const auto part = world->split(rank_ % 2);
    const auto alone = part->split(rank_);
    EXPECT_EQ(library_.open_comms, part->size() > 1 ? 2 : 1);  // a rank alone needs none
    EXPECT_EQ(&alone->place(), &world->place());
    Tensor values = at::full({2}, rank_, at::kLong);
    alone->sum_(values);
    EXPECT_EQ(values[1].item<std::int64_t>(), rank_);
    part->sum_(values);
    std::int64_t sum = 0;
    for (int r = rank_ % 2; r < size_; r += 2) sum += r;
    EXPECT_EQ(values[1].item<std::int64_t>(), sum);
    // Bytes count where they went.
    EXPECT_EQ(part->traffic().bytes, 16);
    EXPECT_EQ(world->traffic().bytes, 0);
  }
  EXPECT_EQ(library_.open_comms, 1);
}

TEST_F(DeviceCommunicatorTest, LeavesRanksOutOfAllParts) {
  const auto world = make();
  const bool inside = rank_ < 2;
  const auto part = world->split(inside ? 0 : Communicator::kNoPart);
  ASSERT_EQ(part != nullptr, inside);
  EXPECT_EQ(library_.open_comms, inside && part->size() > 1 ? 2 : 1);
}

TEST_F(DeviceCommunicatorTest, AbortsOnAnAsynchronousError) {
  const auto world = make();
  library_.hangs = true;
  library_.asynchronous_failure = "unhandled system error (socket closed)";
  Tensor values = at::full({3}, 1, at::kFloat);
  EXPECT_EQ(error_of([&] { world->sum_(values); }),
            "a sum over ranks failed: unhandled system error (socket closed)");
  EXPECT_EQ(library_.aborted, 1);
  // It stays given up, and says so at once.
  library_.asynchronous_failure.clear();
  EXPECT_EQ(error_of([&] { world->broadcast_(values, 0); }),
            "a broadcast failed: NCCL was given up after an error");
  EXPECT_EQ(error_of([&] { world->split(0); }),
            "a split of NCCL's communicator failed: NCCL was given up after an error");
  EXPECT_EQ(library_.aborted, 1);
}

TEST_F(DeviceCommunicatorTest, AbortsWhenACallFails) {
  const auto world = make();
  library_.failure = "invalid usage";
  Tensor values = at::full({3}, 1, at::kFloat);
  EXPECT_EQ(error_of([&] { world->max_(values); }), "a maximum over ranks failed: invalid usage");
  EXPECT_EQ(library_.aborted, 1);
}

TEST_F(DeviceCommunicatorTest, EveryRankLearnsThatThereIsNoId) {
  library_.failure = "no socket interface found";
  EXPECT_EQ(error_of([&] { make(); }), "the start of NCCL failed: no socket interface found");
  EXPECT_EQ(library_.open_streams, 0);
  EXPECT_EQ(library_.open_events, 0);
}

TEST_F(DeviceCommunicatorTest, GivesUpWhenNobodyGetsOn) {
  if (size_ == 1) GTEST_SKIP() << "nobody to wait for";
  const auto patient = world_communicator(60);
  const auto world = make(0.3);
  if (rank_ == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
  } else {
    library_.hangs = true;
    Tensor values = at::full({3}, 1, at::kFloat);
    const std::string text = error_of([&] { world->sum_(values); });
    EXPECT_NE(text.find("no progress in a sum over ranks"), std::string::npos) << text;
    EXPECT_NE(text.find(": rank 0 on "), std::string::npos) << text;
    EXPECT_EQ(library_.aborted, 1);
  }
  patient->barrier();
}

TEST_F(DeviceCommunicatorTest, AbortsWhenAnExceptionPasses) {
  try {
    const auto world = make();
    throw Error("elsewhere");
  } catch (const Error&) {
  }
  EXPECT_EQ(library_.aborted, 1);
  EXPECT_EQ(library_.destroyed, 0);
  EXPECT_EQ(library_.open_streams, 0);
}

TEST_F(DeviceCommunicatorTest, RefusesWhatItCannotSend) {
  const auto world = make();
  Tensor bytes = at::full({4}, 1, at::kByte);
  EXPECT_THROW(world->sum_(bytes), std::logic_error);
  Tensor transposed = at::full({4, 3}, 1, at::kFloat).t();
  EXPECT_THROW(world->sum_(transposed), std::logic_error);
  Tensor values = at::full({4}, 1, at::kFloat);
  EXPECT_NO_THROW(world->sum_(values));
}

}  // namespace
}  // namespace fedhpc
