#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fedhpc {

/// Checksums of what a run is made of beside its configuration, hexadecimal digits; empty where there
/// is nothing of the kind.
struct Digests {
  static constexpr const char* kData = "data_digest";
  static constexpr const char* kModel = "model_digest";
  static constexpr const char* kCode = "code_digest";

  std::string data;   ///< of the dataset, where it is read from files
  std::string model;  ///< of what model.file computes
  std::string code;   ///< of plug-ins and of a method in Python

  /// Each by the name it has in a result file and in a plan.
  std::vector<std::pair<std::string, std::string>> named() const {
    return {{kData, data}, {kModel, model}, {kCode, code}};
  }
};

}  // namespace fedhpc
