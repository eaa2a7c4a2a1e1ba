#pragma once

#include <cstdint>

namespace fedhpc {

/// Returns the most bytes of memory that this process has held at one time, or has since restart.
std::int64_t peak_memory();

/// Gives the system back what the C library keeps of freed memory for later.
void give_back_freed_memory();

/// Gives freed memory back to the system. From here on peak_memory() counts anew, where the system
/// lets it.
void restart_peak_memory();

}  // namespace fedhpc
