#include "fedhpc/rounds/link_memory.hpp"

#include <vector>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

// Payloads of one channel would be compressed by the same draws.
TEST(LinkMemory, AChannelHasOnePayload) {
  Layout layout;
  layout.add("w", {3}, 1, Tag::Trainable);
  const Rows model{at::zeros({1, 3}, at::kFloat),
                   std::make_shared<const Layout>(std::move(layout))};
  ClientStore store(std::vector<std::int64_t>{0, 1});
  LinkMemory memory(store);
  memory.open({.model = model}, {}, 0);
  memory.open({.model = model}, {}, 1);
  EXPECT_THROW(memory.open({.model = model}, {}, 1), ConfigError);
}

}  // namespace
}  // namespace fedhpc
