#pragma once

#include "fedhpc/engine/checkpoint.hpp"

namespace fedhpc {

/// Attribute of a checkpoint's /state: the digest of the partition.
inline constexpr const char* kPartitionDigest = "partition";
/// The same of the first model's weights, where they came from a file.
inline constexpr const char* kWeightsDigest = "weights";
/// Attribute of /state with privacy.noise: Traits::averaged_uploads.
inline constexpr const char* kUploads = "averaged_uploads";

/// Throws DataError unless a checkpoint is of the data and of the model at hand, and holds all that
/// the result file goes on with. Warns where it is of other code.
void check_origin(const h5::Handle& file, const Resumption& from, const Experiment& experiment);

}  // namespace fedhpc
