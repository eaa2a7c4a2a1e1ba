// Ranks of one job that were built from different sources.

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

#include "app/configuration.hpp"

namespace fedhpc::testing {
namespace {

TEST(OneBuild, IsWhatRanksRun) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  Communicator& comm = *world;
  BuildInfo own = build_info();
  require_one_build(own, comm);
  if (comm.rank() > 0) own.commit = "0123456789ab";
  if (comm.size() == 1) return require_one_build(own, comm);
  try {
    require_one_build(own, comm);
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0 is fedhpc"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 fedhpc"), std::string::npos) << text;
    EXPECT_NE(text.find("0123456789ab"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fedhpc::testing
