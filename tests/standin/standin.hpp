#pragma once

#include <cstdint>

// What a test finds in the module beside the entries of every module (dlsym).

extern "C" {
/// How often the host has waited for the device: for a number of it, a copy between its memory and
/// the host's that is not pinned or that blocks, a stream, an event.
std::int64_t fedhpc_standin_waits();
/// How often captured work has been repeated.
std::int64_t fedhpc_standin_replays();
/// Ranges of the profiler begun so far, and those not ended.
int fedhpc_standin_ranges();
int fedhpc_standin_open_ranges();
/// The last Precision that use_precision() was told.
int fedhpc_standin_precision();
}
