#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

// Writing, checking and reading a state agree on these.

// Names below /state that are none of a method's states.
constexpr const char* kClients = "clients";
constexpr const char* kPartial = "partial";  // of a round that was left inside
constexpr const char* kClientRows = "clients/rows/";
constexpr const char* kClientScalars = "clients/scalars/";

inline std::string state_path(const std::string& name) { return "/state/" + name; }

inline bool is_state_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kLong;
}

inline h5::Type state_type(at::ScalarType type) {
  require(is_state_type(type), "a state holds float32, float64 or int64");
  if (type == at::kLong) return h5::type_of<std::int64_t>();
  return type == at::kDouble ? h5::type_of<double>() : h5::type_of<float>();
}

/// The number of clients whose rows travel together: a few megabytes.
inline std::int64_t clients_per_block(std::int64_t width, at::ScalarType type) {
  constexpr std::int64_t kBlockBytes = std::int64_t{8} << 20;
  const auto row_bytes = width * static_cast<std::int64_t>(c10::elementSize(type));
  return std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(row_bytes, 1));
}

}  // namespace fedhpc
