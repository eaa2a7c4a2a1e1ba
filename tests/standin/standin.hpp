#pragma once

#include <cstdint>

// What a test finds in the module beside the entries of every module (dlsym).

extern "C" {
/// How often the host has waited for the device: for a number of it, a copy from or to memory that
/// is not pinned, a stream, an event.
std::int64_t fedhpc_standin_waits();
}
