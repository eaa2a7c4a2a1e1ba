#pragma once

#include <string>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

/// Throws Error on every rank if any of them has failed, which a text says that is not empty: with
/// that of the lowest such rank. Collective.
inline void fail_together(Communicator& comm, const std::string& failure) {
  for (const std::string& text : comm.all_texts(failure)) {
    if (!text.empty()) throw Error(text);
  }
}

}  // namespace fedhpc
