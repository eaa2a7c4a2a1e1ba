#include "fedhpc/core/processor.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// The fields that name a type, on x86 and on Arm, and the words before their values.
constexpr std::array<std::pair<const char*, const char*>, 5> kFields{
    {{"model name", ""},
     {"cpu family", "family "},
     {"model", "model "},
     {"CPU implementer", "implementer "},
     {"CPU part", "part "}}};

std::string without_blanks(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::string processor_type(std::istream& cpuinfo) {
  std::array<std::string, kFields.size()> values;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {  // of the first core
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (without_blanks(line.substr(0, colon)) == kFields[i].first) {
        values[i] = without_blanks(line.substr(colon + 1));
      }
    }
  }
  std::string type;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (values[i].empty()) continue;
    type += (type.empty() ? "" : ", ") + std::string(kFields[i].second) + values[i];
  }
  return type.empty() ? "unknown" : type;
}

std::string with_added(const std::string& names, const std::string& more) {
  constexpr std::string_view kBetween = " + ";
  std::string all = names;
  for (std::size_t first = 0; first < more.size();) {
    const std::size_t last = std::min(more.find(kBetween, first), more.size());
    const std::string name = more.substr(first, last - first);
    const std::string framed = concat(kBetween, name, kBetween);
    if (concat(kBetween, all, kBetween).find(framed) == std::string::npos) {
      all = all.empty() ? name : concat(all, kBetween, name);
    }
    first = last + kBetween.size();
  }
  return all;
}

std::string processor_type() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  return processor_type(cpuinfo);
}

}  // namespace fedhpc
