#pragma once

#include <string>

namespace fedhpc::h5 {

/// Tells the damage of an HDF5 file that somebody else wrote, empty if there is none. It reads all
/// of the structure, and all data must lie inside of the file. A damaged file may crash the library
/// or keep it busy for ever: a child process looks, for some seconds at most.
/// What it found sound is not looked through again before it changes.
std::string damage_of(const std::string& path);

}  // namespace fedhpc::h5
