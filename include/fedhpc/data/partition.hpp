#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/registry.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/options.hpp"

namespace fedhpc::h5 {
class Handle;
}

namespace fedhpc {

/// One list of sample ids per client, stored one after the other.
struct SampleLists {
  std::vector<std::int64_t> offsets{0};  // [N + 1]
  std::vector<std::int64_t> samples;     // [offsets[N]]

  std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t count(std::int64_t client) const;
  std::span<const std::int64_t> of(std::int64_t client) const;
  /// Makes room for so many lists of so many samples in all.
  void reserve(std::int64_t lists, std::int64_t total);
  void append(std::span<const std::int64_t> list);
};

/// Assigns samples to clients for training, for testing and for choosing between runs.
struct Partition {
  SampleLists train;
  SampleLists test;
  SampleLists validation;                    // without lists when no samples are set aside
  std::vector<std::int32_t> edge_of_client;  // [N], or empty when the file does not say

  std::int64_t clients() const { return train.size(); }
};

/// Assigns samples to clients (data.partition) and splits each client's samples into training and
/// test by data.train_fraction. data.train_per_class and test_per_class go with
/// data.partition=labels and data.split=client. data.split=official partitions the official
/// training set only and gives clients no test samples. Then floor(data.validation_fraction n) of a
/// client's n training samples are set aside. Ids of a client are ascending, or in the order of a
/// partition file, whose number of clients replaces data.clients. A client may get no sample. The
/// result depends on the options and the labels alone: the same on every rank. Throws ConfigError
/// for an impossible request (naming what is needed and what there is), DataError for a bad file or
/// bad lists of a plug-in. src/data/partition_*.cpp describe the rules.
Partition make_partition(const DataOptions& options, const Dataset& dataset);

/// Reads a partition that `run.save=partition` wrote, or one at the root of a file
/// (docs/semantics.md, 2). Throws DataError naming file and data set for anything missing or
/// inconsistent.
Partition read_partition(const std::string& path, std::int64_t num_samples);

/// Returns the number of clients of such a file.
std::int64_t clients_in_partition_file(const std::string& path);

/// Writes the partition's data sets (docs/semantics.md, 2) at `location`: the root of a file of its
/// own, or the group /partition of a result file.
void write_partition(const h5::Handle& location, const Partition& partition);

/// Returns a text that another partition does not have: a checksum of all its lists.
std::string digest_of(const Partition& partition);

/// Returns every client's validation samples as its test samples, without training samples.
Partition tested_on_validation(const Partition& partition);

/// Counts the samples that are a training sample of some client and a test or validation sample of
/// one.
std::int64_t leaked_samples(const Partition& partition);

/// Every partitioner: data.partition.
Registry<Partition(const DataOptions&, const Dataset&)>& partitioner_registry();

}  // namespace fedhpc
