// Iid: a permutation of all samples in parts of equal size, the first S mod N parts one larger.

#include "fedhpc/core/rng.hpp"

#include "data/partitioners.hpp"

namespace fedhpc {

Partition partition_iid(const DataOptions& options, const Dataset& dataset) {
  const DrawKey key{.seed = static_cast<std::uint64_t>(options.seed),
                    .purpose = Purpose::Partition,
                    .pass = static_cast<std::uint64_t>(PartitionDraw::Deal)};
  const std::vector<std::int64_t> order = permutation(key, dealt_samples(options, dataset));
  SampleLists owned;
  owned.reserve(options.clients, static_cast<std::int64_t>(order.size()));
  for (std::int64_t k = 0; k < options.clients; ++k) {
    const auto [begin, end] =
        array_split(static_cast<std::int64_t>(order.size()), options.clients, k);
    owned.append(std::span(order).subspan(begin, end - begin));
  }
  return split_clients(std::move(owned), options);
}

}  // namespace fedhpc
