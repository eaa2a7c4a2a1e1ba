#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

/// The first rank whose text is not that of rank 0; 0 where all have one. Collective.
inline std::ptrdiff_t first_to_differ(Communicator& comm, const std::string& text) {
  const std::vector<std::string> all = comm.all_texts(text);
  const auto differs = [&](const std::string& one) { return one != all.front(); };
  const auto found = std::ranges::find_if(all, differs);
  return found == all.end() ? 0 : found - all.begin();
}

}  // namespace fedhpc
