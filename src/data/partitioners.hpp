#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fedhpc/core/range.hpp"
#include "fedhpc/data/partition.hpp"

namespace fedhpc {

#define FEDHPC_PARTITIONER(name, sentence) \
  Partition partition_##name(const DataOptions& options, const Dataset& dataset);
#include "data/partitioners.def"
#undef FEDHPC_PARTITIONER

/// The first word of a partitioner's draw keys (`pass`, all with Purpose::Partition), so that no
/// two kinds of draws share a sequence.
enum class PartitionDraw : std::uint64_t {
  Deal = 0,             ///< iid: permutation of all samples
  DirichletShares = 1,  ///< epoch = try, client = label: N gammas
  DirichletOrder = 2,   ///< client = label: permutation of the label's samples
  LabelChoice = 3,      ///< client = client: labels drawn until enough differ
  LabelOrder = 4,       ///< client = label: permutation of the label's samples
  ShardDeal = 5,        ///< permutation of the shards
  PfedmeOrder = 6,      ///< client = label: permutation of the label's samples
};

/// How a message begins that is about one list of a partition ("train_samples").
using NamesLists = std::function<std::string(const std::string& list)>;

/// Throws DataError unless every list has the samples that its offsets say, all of them 0 to
/// num_samples - 1, and all lists, edge_of_client too, are of as many clients.
void check_partition(const Partition& partition, std::int64_t num_samples, const NamesLists& named);

/// A sentence where a client has a sample more than once in one of its lists; `source` begins it.
std::string repeated_samples(const std::string& source, const Partition& partition);

/// The same checks for what a partitioner of a plug-in has made, which is of data.clients.
void check_added(const Partition& partition, const DataOptions& options, std::int64_t num_samples);

/// Returns the number of samples dealt to clients: all of them, or the official training set.
std::int64_t dealt_samples(const DataOptions& options, const Dataset& dataset);

/// Returns the dealt samples of each label in an order drawn for that label.
std::vector<std::vector<std::int64_t>> shuffled_by_label(const DataOptions& options,
                                                         const Dataset& dataset,
                                                         PartitionDraw draw);

/// [begin, end) of part i when n things are split into m parts as equal as can be, larger parts
/// first (numpy.array_split).
Range array_split(std::int64_t n, std::int64_t m, std::int64_t i);

/// The share f of n samples is floor(f n + 1/2) or floor(f n) of them.
enum class Rounding { Nearest, Down };

/// Splits each client's samples into training and test samples by data.split and
/// data.train_fraction. Client k trains on the first f n (rounded) of a permutation of its
/// ascending ids (Purpose::Split, client = k). Both lists are ascending.
Partition split_clients(SampleLists owned, const DataOptions& options,
                        Rounding rounding = Rounding::Nearest);
Partition split_clients(const std::vector<std::vector<std::int64_t>>& owned,
                        const DataOptions& options, Rounding rounding = Rounding::Nearest);

}  // namespace fedhpc
