#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/kmeans.hpp"

#include "codecs/bits.hpp"
#include "codecs/symbol_coder.hpp"

namespace fedhpc {

/// The centre nearest to every value, of at most k found by k-means (math/kmeans.hpp):
///
///   m - 1 in ceil(log2 min(k, n)) bits, the number of centres
///   the counts of all clusters but the last, each less 1, in as few bits as what is left takes:
///     ceil(log2 l) with l - 1 the values that later clusters can do without
///   the m centres, rising, each 4 or 8 bytes as in the row
///   the index of every value, coded with the counts (symbol_coder.hpp)
///
/// Zeros fill up a byte behind the counts and behind the indices. For indices of entropy H and
/// numbers of w bits that is w m + n H and the counts. The similarity-network paper counts w k + n
/// ceil(log2 k). A row of no more than k distinct values arrives bit for bit.
struct KMeans {
  std::int64_t k = 16;

  template <typename T>
  static constexpr bool kLossless = false;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    return bytes_of(kmeans(row, k));
  }

  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    const Clusters<T> clusters = kmeans(std::span<const T>(row), k);
    fill_(row, clusters.centres, clusters.assignment);
    return bytes_of(clusters);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    if (row.empty()) return;
    const Clusters<T> clusters = kmeans(row, k);
    const auto m = static_cast<std::int64_t>(clusters.centres.size());
    writer.write(static_cast<std::uint64_t>(m - 1), centres_width(row.size()));
    each_count_but_last(clusters.counts, row.size(), [&](std::int64_t count, int width) {
      writer.write(static_cast<std::uint64_t>(count - 1), width);
    });
    writer.align();
    for (const T centre : clusters.centres) writer.append(bits_of(centre));
    SymbolCoder(clusters.counts).encode(clusters.assignment, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    if (row.empty()) return;
    const auto n = static_cast<std::int64_t>(row.size());
    const auto m = static_cast<std::int64_t>(reader.read(centres_width(row.size()))) + 1;
    if (m > std::min(k, n)) reader.fail(concat("it holds ", m, " centres"));
    std::vector<std::int64_t> counts;
    std::int64_t left = n;
    for (std::int64_t later = m - 1; later > 0; --later) {
      counts.push_back(static_cast<std::int64_t>(reader.read(bits_for(left - later))) + 1);
      left -= counts.back();
      if (left < later) reader.fail("its clusters are larger than the row");
    }
    counts.push_back(left);
    reader.align();
    std::vector<T> centres;
    for (std::int64_t q = 0; q < m; ++q) {
      centres.push_back(std::bit_cast<T>(reader.take<BitsOf<T>>()));
      if (q > 0 && !std::is_lt(std::strong_order(centres[q - 1], centres[q]))) {
        reader.fail(concat("centre ", q, " does not follow in rising order"));
      }
    }
    fill_(row, centres, SymbolCoder(counts).decode(reader));
  }

 private:
  int centres_width(std::size_t n) const {
    return bits_for(std::min(k, static_cast<std::int64_t>(n)));
  }

  /// Calls work(count, width of its field).
  template <typename Work>
  static void each_count_but_last(std::span<const std::int64_t> counts, std::size_t n,
                                  const Work& work) {
    auto left = static_cast<std::int64_t>(n);
    auto later = static_cast<std::int64_t>(counts.size()) - 1;
    for (std::size_t q = 0; later > 0; ++q, --later) {
      work(counts[q], bits_for(left - later));
      left -= counts[q];
    }
  }

  template <typename T>
  std::int64_t bytes_of(const Clusters<T>& clusters) const {
    if (clusters.assignment.empty()) return 0;
    std::int64_t bits = centres_width(clusters.assignment.size());
    each_count_but_last(clusters.counts, clusters.assignment.size(),
                        [&](std::int64_t, int width) { bits += width; });
    return bytes_for(bits) + static_cast<std::int64_t>(clusters.centres.size() * sizeof(T)) +
           SymbolCoder(clusters.counts).encoded_bytes(clusters.assignment);
  }

  template <typename T>
  static void fill_(std::span<T> row, const std::vector<T>& centres,
                    const std::vector<std::int32_t>& assignment) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = centres[static_cast<std::size_t>(assignment[i])];
    }
  }
};

}  // namespace fedhpc
