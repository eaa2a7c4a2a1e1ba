#include "math/wide.hpp"

#include <cstdlib>
#include <string_view>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

#if defined(__x86_64__)
namespace {

/// Whether FEDHPC_CPU asks to do as a processor without 512-bit vectors does.
bool held_back() {
  const char* asked = std::getenv("FEDHPC_CPU");
  if (asked == nullptr || *asked == '\0') return false;
  if (std::string_view(asked) == "avx2") return true;
  throw Error(concat("FEDHPC_CPU = ", asked, "; allowed: avx2"));
}

}  // namespace
#endif

bool has_wide_vectors() {
#if defined(__x86_64__)
  static const bool has = !held_back() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}

}  // namespace fedhpc
