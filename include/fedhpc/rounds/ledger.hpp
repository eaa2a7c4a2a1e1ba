#pragma once

#include <array>
#include <cstdint>

namespace fedhpc {

/// Links of the simulated network.
enum class Link { ClientEdge, EdgeCloud, ClientCloud };
enum class Direction { Up, Down };

/// Bytes of payload booked on the simulated network in one round, on this rank: no headers, each
/// payload's bits rounded up to bytes. Not to be mixed up with what the ranks themselves exchange.
class Ledger {
 public:
  static constexpr int kLinks = 3;
  static constexpr int kEntries = 2 * kLinks;

  Ledger() = default;
  /// One that has booked these already, in the order of entries().
  explicit Ledger(const std::array<std::int64_t, kEntries>& entries) : entries_(entries) {}

  void book(Link link, Direction direction, std::int64_t bytes);
  std::int64_t booked(Link link, Direction direction) const;
  /// All entries, up before down, in order of Link; to be summed over ranks.
  const std::array<std::int64_t, kEntries>& entries() const { return entries_; }
  void clear() { entries_.fill(0); }

 private:
  std::array<std::int64_t, kEntries> entries_{};
};

/// Position of a link and direction in Ledger::entries().
std::size_t ledger_index(Link link, Direction direction);

}  // namespace fedhpc
