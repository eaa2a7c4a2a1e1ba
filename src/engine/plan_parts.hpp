#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ops/empty.h>

#include "fedhpc/engine/plan.hpp"

namespace fedhpc {

/// The greatest of the ranks' numbers. Collective.
template <typename Number>
Number greatest(Communicator& comm, Number number) {
  Tensor one = at::empty({1}, c10::CppTypeToScalarType<Number>::value);
  one.fill_(number);
  comm.max_(one);
  return one.item<Number>();
}

/// Bytes of rows that a run makes of as many clients of a rank.
inline std::int64_t bytes_of_rows(const Parts& parts, const PlannedRun& run, std::int64_t clients) {
  return parts.store->bytes_of_client() * std::min(clients, run.clients_with_rows);
}

}  // namespace fedhpc
