#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rounds.hpp"

namespace fedhpc::python {

/// A block in its time.
struct PyBlock {
  /// A block of some clients, with their ids.
  struct Some {
    Some(std::vector<std::int64_t> clients, const Block& whole)
        : ids(std::move(clients)), block(whole.only(ids)) {}

    std::vector<std::int64_t> ids;
    Block block;
  };

  Block* block;
  TimePtr time;
  RoundSessionPtr session;
  std::shared_ptr<Some> owned = {};

  Block& get() const {
    time->check();
    return *block;
  }
};

}  // namespace fedhpc::python
