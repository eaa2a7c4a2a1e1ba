#pragma once

#include <memory>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

#define FEDHPC_DATASET(name, sentence) \
  std::unique_ptr<Dataset> open_##name(const DataOptions& options);
#include "data/datasets.def"
#undef FEDHPC_DATASET

/// data.dir, else the environment variable FEDHPC_DATA. Throws ConfigError when neither is set.
std::string data_directory(const DataOptions& options);

/// data.file. Throws ConfigError when it is not set.
const std::string& data_file(const DataOptions& options);

}  // namespace fedhpc
