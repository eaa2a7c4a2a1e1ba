#pragma once

#include <cstdint>

namespace fedhpc {

/// Whether a kernel that is given an address of the host is refused: not where the compiler cannot
/// clear what lies between members.
constexpr bool kFindsAddressesOfHost = __has_builtin(__builtin_clear_padding);

}  // namespace fedhpc

// What a test finds in the module beside the entries of every module (dlsym).

extern "C" {
/// How often the host has waited for the device: for a number of it, a copy between its memory and
/// the host's that is not pinned or that blocks, a stream, an event.
std::int64_t fedhpc_standin_waits();
/// Bytes of tensors copied from the device to the host so far.
std::int64_t fedhpc_standin_bytes_to_host();
/// How often captured work has been repeated.
std::int64_t fedhpc_standin_replays();
/// Ranges of the profiler begun so far, and those not ended.
int fedhpc_standin_ranges();
int fedhpc_standin_open_ranges();
/// The last Precision that use_precision() was told.
int fedhpc_standin_precision();
/// Gives the costs of each kernel and operator, by name: of one replay of the graph that was
/// replayed last (of_step = 1), or of all outside of graphs since this was asked last (0).
using FedhpcStandinCost = void (*)(void* to, const char* name, std::int64_t launches,
                                   std::int64_t bytes, double operations);
void fedhpc_standin_costs(int of_step, FedhpcStandinCost take, void* to);
}
