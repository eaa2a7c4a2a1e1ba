#include "fedhpc/rounds/ledger.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::size_t ledger_index(Link link, Direction direction) {
  return static_cast<std::size_t>(static_cast<int>(link) +
                                  (direction == Direction::Up ? 0 : Ledger::kLinks));
}

void Ledger::book(Link link, Direction direction, std::int64_t bytes) {
  require(bytes >= 0, "a payload has no negative size");
  entries_[ledger_index(link, direction)] += bytes;
}

}  // namespace fedhpc
