#pragma once

#include <functional>
#include <optional>
#include <string>

namespace fedhpc {

/// Runs `work` in a child process and returns its text; nothing if it threw, crashed or took longer
/// than the limit. This is for files that may be damaged: HDF5 can hang in them. `work` uses no MPI
/// and leaves no trace in this process.
std::optional<std::string> within_time(double limit_seconds,
                                       const std::function<std::string()>& work);

}  // namespace fedhpc
