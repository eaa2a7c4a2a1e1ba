// Shards: the pathological partition of McMahan et al. (AISTATS 2017), as pFedSOP uses it. All
// samples are put in order of label (within a label in order of id) and cut into s = N b shards of
// equal size, the first S mod s of them one larger; every client gets b =
// data.shards_per_client shards without replacement: client u those at positions ub to ub + b - 1
// of a permutation of the s shards. A client holds at most about b labels: a shard that crosses
// from one label into the next has two.

#include <algorithm>
#include <numeric>

#include "fedhpc/core/rng.hpp"

#include "data/partitioners.hpp"

namespace fedhpc {

Partition partition_shards(const DataOptions& options, const Dataset& dataset) {
  const std::int64_t samples = dealt_samples(options, dataset);
  const std::int64_t each = options.shards_per_client;
  if (each > samples / options.clients) {
    throw ConfigError(concat("data.shards_per_client = ", each, " for data.clients = ",
                             options.clients, " asks for more shards than the ", samples,
                             " samples of ", options.name, "; lower one of them"));
  }
  const std::vector<std::int64_t> labels = dataset.labels();
  std::vector<std::int64_t> by_label(static_cast<std::size_t>(samples));
  std::iota(by_label.begin(), by_label.end(), 0);
  std::stable_sort(by_label.begin(), by_label.end(),
                   [&](std::int64_t a, std::int64_t b) { return labels[a] < labels[b]; });

  const std::int64_t shards = options.clients * each;
  const std::vector<std::int64_t> dealt =
      permutation({.seed = static_cast<std::uint64_t>(options.seed),
                   .purpose = Purpose::Partition,
                   .pass = static_cast<std::uint64_t>(PartitionDraw::ShardDeal)},
                  shards);
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(options.clients));
  for (std::int64_t i = 0; i < shards; ++i) {
    const auto [begin, end] = array_split(samples, shards, dealt[i]);
    std::vector<std::int64_t>& mine = owned[i / each];
    mine.insert(mine.end(), by_label.begin() + begin, by_label.begin() + end);
  }
  return split_clients(owned, options);
}

}  // namespace fedhpc
