#pragma once

#include <cstdint>

namespace fedhpc {

/// The collectives in which ranks wait.
enum class Call : std::int32_t {
  None,
  Sum,
  Maximum,
  Broadcast,
  Gather,
  GatherOnAll,
  AllToAll,
  Texts,
  Barrier,
  Delivery,
  SplitOfNccl,
  StartOfNccl,
};

/// "a sum over ranks".
const char* name(Call call);

}  // namespace fedhpc
