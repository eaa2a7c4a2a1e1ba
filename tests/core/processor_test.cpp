#include "fedhpc/core/processor.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

std::string type_of(const std::string& cpuinfo) {
  std::istringstream text(cpuinfo);
  return processor_type(text);
}

TEST(Processor, IsNamedByItsType) {
  EXPECT_EQ(type_of("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
                    "model name\t: AMD EPYC 7763 64-Core Processor\nstepping\t: 1\n\n"
                    "processor\t: 1\nmodel\t\t: 2\n"),
            "AMD EPYC 7763 64-Core Processor, family 25, model 1");
  EXPECT_EQ(type_of("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "implementer 0x41, part 0xd0c");
  EXPECT_EQ(type_of(""), "unknown");
  EXPECT_EQ(type_of("no colon\nmodel\t:\n"), "unknown");
}

TEST(Processor, TypesStandOnceInAList) {
  EXPECT_EQ(with_added("", "A, model 1"), "A, model 1");
  EXPECT_EQ(with_added("A, model 17", "A, model 1"), "A, model 17 + A, model 1");
  EXPECT_EQ(with_added("A + B", "B"), "A + B");
  EXPECT_EQ(with_added("A", "B + A + C"), "A + B + C");
  EXPECT_EQ(with_added("A", ""), "A");
}

}  // namespace
}  // namespace fedhpc
