#include "support/rank_report.hpp"

#include <stdexcept>

namespace fedhpc::testing {
namespace {

// A field is "<size>:<bytes>", so that a failure text may hold any character.
void put(std::string& out, std::string_view field) {
  out += std::to_string(field.size());
  out += ':';
  out += field;
}

std::string take(std::string_view& in) {
  const std::size_t colon = in.find(':');
  if (colon == std::string_view::npos) {
    throw std::invalid_argument("test report of another rank: a field has no size");
  }
  const std::size_t size = std::stoul(std::string(in.substr(0, colon)));
  in.remove_prefix(colon + 1);
  if (size > in.size()) {
    throw std::invalid_argument("test report of another rank: a field is cut short");
  }
  std::string field(in.substr(0, size));
  in.remove_prefix(size);
  return field;
}

}  // namespace

std::string pack(const RankReport& report) {
  std::string out;
  put(out, report.place);
  put(out, report.skipped ? "skipped" : "");
  put(out, report.skip_reason);
  for (const Failure& failure : report.failures) {
    put(out, failure.file);
    put(out, std::to_string(failure.line));
    put(out, failure.severity == Severity::Fatal ? "fatal" : "");
    put(out, failure.text);
  }
  return out;
}

RankReport unpack(std::string_view bytes) {
  RankReport report;
  report.place = take(bytes);
  report.skipped = !take(bytes).empty();
  report.skip_reason = take(bytes);
  while (!bytes.empty()) {
    Failure failure;
    failure.file = take(bytes);
    failure.line = std::stoi(take(bytes));
    failure.severity = take(bytes).empty() ? Severity::NonFatal : Severity::Fatal;
    failure.text = take(bytes);
    report.failures.push_back(std::move(failure));
  }
  return report;
}

std::string describe(const Failure& failure) {
  if (failure.file.empty()) {
    return "unknown file: " + failure.text;
  }
  return failure.file + ":" + std::to_string(failure.line) + ": " + failure.text;
}

}  // namespace fedhpc::testing
