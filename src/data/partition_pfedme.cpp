// The generator of pFedMe's experiments on MNIST (T Dinh, Tran, Nguyen, NeurIPS 2020; their public
// data/Mnist script), which TDPFed and sFedHP take over: few users with most of the samples, many
// with a handful.
//
// User u holds the labels (u + j) mod K, j = 0..L-1 (L = data.labels_per_client). How many of each
// follows a quirk of the script: for j alone, not for the label, one list of N numbers is drawn
// from the size of class j; user u takes entry u of list j. A list begins with t = |class j|, then
// N - 1 times
//
//   v = randint(t div (N + 1), t div 2),   t <- t - v,
//
// and ends with what is left. So only as many samples are handed out as classes 0..L-1 have.
// randint is numpy.random.seed(data.pfedme_seed); numpy.random.randint(low, high): MT19937, 32-bit
// words masked to the bits of the range and rejected beyond it. With MNIST, N = 20 and seed 1 the
// numbers are those of the script.
//
// Which samples of a label a user takes is our own draw (data.seed): the next ones of a permutation
// of the label. Of a user's n samples floor(data.train_fraction n) train, as in the script.
//
// Deviations: where the interval of randint is empty numpy stops, here v is its lower end; a label
// that runs out gives what is left (neither happens with MNIST and N = 20).

#include <algorithm>
#include <random>

#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

using Counts = std::vector<std::vector<std::int64_t>>;  // [L][N]

/// The legacy stream of numpy.random (RandomState) for ranges below 2^32.
class LegacyRandint {
 public:
  explicit LegacyRandint(std::int64_t seed) : words_(static_cast<std::uint32_t>(seed)) {}

  /// Uniform in [low, high); `low` where that is empty.
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    if (high - low <= 1) return low;  // numpy draws nothing for a single value either
    const auto range = static_cast<std::uint32_t>(high - low - 1);
    std::uint32_t mask = range;
    for (const int shift : {1, 2, 4, 8, 16}) mask |= mask >> shift;
    std::uint32_t value = 0;
    do {
      value = static_cast<std::uint32_t>(words_()) & mask;
    } while (value > range);
    return low + value;
  }

 private:
  std::mt19937 words_;
};

Counts draw_counts(const DataOptions& options,
                   const std::vector<std::vector<std::int64_t>>& by_label) {
  LegacyRandint randint(options.pfedme_seed);
  Counts counts;
  for (std::int64_t j = 0; j < options.labels_per_client; ++j) {
    auto left = static_cast<std::int64_t>(by_label[j].size());
    std::vector<std::int64_t>& list = counts.emplace_back();
    for (std::int64_t u = 0; u + 1 < options.clients; ++u) {
      const std::int64_t low = left / (options.clients + 1);
      list.push_back(randint(low, left / 2));
      left -= list.back();
    }
    list.push_back(left);
  }
  return counts;
}

}  // namespace

Partition partition_pfedme(const DataOptions& options, const Dataset& dataset) {
  const std::int64_t classes = dataset.classes();
  if (options.labels_per_client > classes) {
    throw ConfigError(concat("data.labels_per_client = ", options.labels_per_client, ", but ",
                             options.name, " has ", classes, " labels; lower it"));
  }
  const auto by_label = shuffled_by_label(options, dataset, PartitionDraw::PfedmeOrder);
  const Counts counts = draw_counts(options, by_label);
  std::vector<std::int64_t> taken(by_label.size(), 0);
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(options.clients));
  for (std::int64_t u = 0; u < options.clients; ++u) {
    for (std::int64_t j = 0; j < options.labels_per_client; ++j) {
      const std::int64_t label = (u + j) % classes;
      const auto available = static_cast<std::int64_t>(by_label[label].size()) - taken[label];
      const auto begin = by_label[label].begin() + taken[label];
      const std::int64_t count = std::min(counts[j][u], available);
      owned[u].insert(owned[u].end(), begin, begin + count);
      taken[label] += count;
    }
  }
  return split_clients(owned, options, Rounding::Down);
}

}  // namespace fedhpc
