#pragma once

#include <functional>
#include <optional>
#include <string>

namespace fedhpc {

/// Runs `work` in a child process and returns its text; nothing if it threw, crashed or took more
/// time of a processor than the limit, or fifteen times as long by the clock: a machine may be busy
/// and a disk slow. This is for files that may be damaged: HDF5 can hang in them. `work` uses no MPI
/// and leaves no trace in this process.
std::optional<std::string> within_time(double limit_seconds,
                                       const std::function<std::string()>& work);

}  // namespace fedhpc
