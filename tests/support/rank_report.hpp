#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fedhpc::testing {

enum class Severity { NonFatal, Fatal };

// One failed assertion, or one exception that escaped a test, on one rank.
struct Failure {
  std::string file;  // empty: unknown, as for an exception
  int line = -1;
  Severity severity = Severity::NonFatal;
  std::string text;
};

// What a rank tells the others when it reaches a meeting point.
struct RankReport {
  std::string place;  // "the end of test Suite.Name"; equal on all ranks when they run in step
  bool skipped = false;
  std::string skip_reason;
  std::vector<Failure> failures;
};

// The report as bytes, and back. unpack throws std::invalid_argument on bytes pack did not write.
std::string pack(const RankReport& report);
RankReport unpack(std::string_view bytes);

// "file:12: text", or "unknown file: text" where GoogleTest knows no place.
std::string describe(const Failure& failure);

}  // namespace fedhpc::testing
