#include "fedhpc/core/process_memory.hpp"

#include <fstream>
#include <malloc.h>
#include <string>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::int64_t peak_memory() {
  constexpr std::int64_t kUnit = 1024;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t peak = 0;
    if (word == "VmHWM:" && status >> peak) return kUnit * peak;
  }
  throw Error("cannot read the process's memory in /proc/self/status");
}

void give_back_freed_memory() { malloc_trim(0); }

void restart_peak_memory() {
  give_back_freed_memory();  // or what is kept for later hides what is taken next
  const char* peak_alone = "5";
  std::ofstream("/proc/self/clear_refs") << peak_alone;
}

}  // namespace fedhpc
