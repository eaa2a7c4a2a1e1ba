#pragma once

#include <string>

#include "fedhpc/models/description.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

/// Reads the layers of a model file (docs/model-files.md), not its weights. Throws DataError that
/// names the file, and the line where one is wrong.
ModelDescription read_model_file(const std::string& path);

/// A checksum of what the model of model.name = file computes: of the lines and constants of a model
/// file, without its weights, or of a script. Empty for other models.
std::string digest_of_model_file(const ModelOptions& options);

}  // namespace fedhpc
