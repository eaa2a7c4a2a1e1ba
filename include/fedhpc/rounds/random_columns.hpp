#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/ledger.hpp"

namespace fedhpc {

/// Chooses columns at random for every client, round and direction. These are m = max(1,
/// floor(fraction d + 1/2)) of the d trainable ones: the first m of a permutation. It is drawn with
/// key (seed, Purpose::Codec, pass = 0 down or 1 up, client, round). Both ends draw it, so only the
/// numbers and a seed travel. Buffers are always chosen.
class RandomColumns {
 public:
  RandomColumns(std::uint64_t seed, double fraction, LayoutPtr layout);

  /// Draws the columns that travel for each client, [C, P] of type bool.
  Tensor draw(std::span<const std::int64_t> clients, std::int64_t round, Direction direction) const;
  /// The bytes of one client's payload: its columns in numbers of this type, and the seed.
  std::int64_t payload_bytes(at::ScalarType type) const;
  /// d / m: a travelling number times this stands also for those that do not travel.
  double inverse_fraction() const;

 private:
  std::uint64_t seed_;
  LayoutPtr layout_;
  std::vector<std::int64_t> trainable_;  // columns, [d]
  std::int64_t chosen_;                  // m
};

}  // namespace fedhpc
