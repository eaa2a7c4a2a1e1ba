#pragma once

namespace fedhpc::h5 {

/// Tells HDF5 to close nothing when the process ends: of a file that a full disk has cut short that
/// is a segmentation fault. To be called before anything else of HDF5.
void close_nothing_at_exit();

}  // namespace fedhpc::h5
