// Work that is late (FEDHPC_STANDIN_LATE): what has no wait that it needs gives something else.
#include <cstdlib>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/gpu_library.hpp"

#include "fixtures/standin.hpp"

namespace fedhpc {
namespace {

class StandinLate : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* seed = std::getenv("FEDHPC_STANDIN_LATE");
    if (seed == nullptr) GTEST_SKIP() << "work is not late without FEDHPC_STANDIN_LATE";
    is_random_ = std::atoi(seed) > 1;
    Standin::get();
  }

  c10::Stream main() const { return device_.getStream({at::kCUDA, 0}); }
  c10::Stream side() const { return side_; }
  /// What is enqueued on one from now on waits for what is on the other.
  static void wait(const c10::Stream& waiting, const c10::Stream& other) {
    c10::Event passed(at::kCUDA);
    passed.record(other);
    passed.block(waiting);
  }

  /// Right with the wait; without, wrong for certain where work is late in a known way.
  void check(bool right, bool waits) const {
    if (waits || !is_random_) {
      EXPECT_EQ(right, waits);
    }
  }

  bool is_random_ = false;
  const at::TensorOptions gpu_ = at::TensorOptions().device(at::kCUDA);

 private:
  c10::impl::VirtualGuardImpl device_{at::kCUDA};
  c10::Stream side_ = device_.getStreamFromGlobalPool({at::kCUDA, 0});
};

TEST_F(StandinLate, AStreamThatDoesNotWaitReadsTooEarly) {
  for (const bool waits : {true, false}) {
    const Tensor values = at::full({100}, 3.F, gpu_);
    if (waits) wait(side(), main());
    const c10::StreamGuard guard(side());
    const bool right = values.mul(2).cpu().equal(at::full({100}, 6.F));
    check(right, waits);
  }
}

TEST_F(StandinLate, MemoryThatIsFreedWhileAnotherStreamUsesItIsNotANumber) {
  for (const bool recorded : {true, false}) {
    Tensor values = at::ones({100}, gpu_);
    Tensor twice;
    wait(side(), main());
    {
      const c10::StreamGuard guard(side());
      twice = values.mul(2);
    }
    if (recorded) values.record_stream(side());
    values = Tensor();
    at::ones({3}, gpu_).cpu();  // the main stream comes to the end of the values
    const c10::StreamGuard guard(side());
    const bool right = twice.cpu().equal(at::full({100}, 2.F));
    check(right, recorded);
  }
}

TEST_F(StandinLate, PinnedMemoryIsReadWhenTheCopysTurnComes) {
  for (const bool waits : {true, false}) {
    const Tensor pinned = gpu_library().pinned({4}, at::kFloat);
    pinned.fill_(1);
    const Tensor values = at::empty({4}, gpu_);
    values.copy_(pinned, /*non_blocking=*/true);
    if (waits) main().synchronize();
    pinned.fill_(5);
    const bool right = values.cpu().equal(at::ones({4}));
    check(right, waits);
  }
}

TEST_F(StandinLate, AnEventPassesInTheEndWhereTheHostLooksAtIt) {
  c10::Event passed(at::kCUDA);
  const Tensor values = at::ones({4}, gpu_);
  passed.record(main());
  int looks = 1;
  while (!passed.query()) ++looks;
  EXPECT_GE(looks, is_random_ ? 1 : 2);
}

}  // namespace
}  // namespace fedhpc
