#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// The `model.*` keys.
struct ModelOptions {
  std::string name = "dnn";
  std::vector<std::int64_t> hidden{100};
  std::string init_file;  ///< empty: drawn

  void declare(OptionSet& options);
};

}  // namespace fedhpc
