#pragma once

#include <string>

#include "fedhpc/models/description.hpp"

namespace fedhpc {

/// Reads the layers of a model file (docs/model-files.md), not its weights. Throws DataError that
/// names the file, and the line where one is wrong.
ModelDescription read_model_file(const std::string& path);

}  // namespace fedhpc
