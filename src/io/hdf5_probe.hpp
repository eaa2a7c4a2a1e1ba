#pragma once

#include <string>

namespace fedhpc::h5 {

/// What is wrong with an HDF5 file that somebody else wrote, empty if nothing is: all of its
/// structure is read, and all of its data lie inside of it. A damaged file may crash the library or
/// keep it busy for ever: a child process looks, for some seconds at most.
std::string damage_of(const std::string& path);

}  // namespace fedhpc::h5
