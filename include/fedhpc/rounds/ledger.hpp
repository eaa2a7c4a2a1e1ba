#pragma once

#include <array>
#include <cstdint>

namespace fedhpc {

/// The links of the simulated network.
enum class Link { ClientEdge, EdgeCloud, ClientCloud };
enum class Direction { Up, Down };

/// Of a seed that travels in the place of what both ends draw from it.
inline constexpr std::int64_t kSeedBytes = 8;

/// Books the bytes of payloads on the simulated network in one round, on this rank. No headers
/// count; each payload's bits are rounded up to bytes. The ranks' own traffic is another matter.
class Ledger {
 public:
  static constexpr int kLinks = 3;
  static constexpr int kEntries = 2 * kLinks;

  Ledger() = default;
  /// Starts from these bookings, in the order of entries().
  explicit Ledger(const std::array<std::int64_t, kEntries>& entries) : entries_(entries) {}

  void book(Link link, Direction direction, std::int64_t bytes);
  /// All entries, up before down, in order of Link; the ranks sum them.
  const std::array<std::int64_t, kEntries>& entries() const { return entries_; }
  void clear() { entries_.fill(0); }

 private:
  std::array<std::int64_t, kEntries> entries_{};
};

/// Returns the position of a link and direction in Ledger::entries().
std::size_t ledger_index(Link link, Direction direction);

}  // namespace fedhpc
