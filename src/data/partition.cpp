#include "fedhpc/data/partition.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fedhpc/core/rng.hpp"

#include "core/digest.hpp"
#include "core/or_added.hpp"
#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

void check_options(const DataOptions& options, const Dataset& dataset) {
  if (options.partition == "file" && options.partition_file.empty()) {
    throw ConfigError("data.partition = file needs the key data.partition_file; set it to a file");
  }
  if (options.partition != "file" && !options.partition_file.empty() &&
      !is_added(partitioner_registry(), options.partition)) {
    throw ConfigError(
        concat("data.partition_file = ", options.partition_file,
               " is read with data.partition = file only; set that or drop the file"));
  }
  if ((options.train_per_class > 0) != (options.test_per_class > 0)) {
    throw ConfigError(concat("data.train_per_class = ", options.train_per_class,
                             " and data.test_per_class = ", options.test_per_class,
                             " must be set together; give both a number above 0, or neither"));
  }
  if (options.train_per_class > 0 &&
      (options.partition != "labels" || options.split != DataSplit::Client)) {
    throw ConfigError(
        "data.train_per_class and data.test_per_class count the samples of each of a client's "
        "labels; they need data.partition = labels and data.split = client");
  }
  constexpr std::array kByLabel = {"dirichlet", "labels", "shards", "pfedme"};
  const bool by_label = std::ranges::find(kByLabel, options.partition) != kByLabel.end();
  if (by_label && dataset.classes() < 2) {
    throw ConfigError(concat("data.partition = ", options.partition,
                             " deals samples by their labels, and ", options.name,
                             " has none beside its targets; give it labels, or use ",
                             "iid, natural or file"));
  }
  if (options.split == DataSplit::Official && dataset.num_test() == 0) {
    throw ConfigError(concat("data.split = official needs a data set with a test set, and ",
                             options.name, " has none; use data.split = client"));
  }
}

}  // namespace

std::int64_t SampleLists::count(std::int64_t client) const {
  require(0 <= client && client < size(), "a client has a list of samples");
  return offsets[client + 1] - offsets[client];
}

std::span<const std::int64_t> SampleLists::of(std::int64_t client) const {
  const std::int64_t length = count(client);
  return {samples.data() + offsets[client], static_cast<std::size_t>(length)};
}

void SampleLists::reserve(std::int64_t lists, std::int64_t total) {
  offsets.reserve(static_cast<std::size_t>(lists + 1));
  samples.reserve(static_cast<std::size_t>(total));
}

void SampleLists::append(std::span<const std::int64_t> list) {
  samples.insert(samples.end(), list.begin(), list.end());
  offsets.push_back(static_cast<std::int64_t>(samples.size()));
}

namespace {

/// Deals each client's n samples: `wanted(n)` at random to `chosen`, the others to `rest`. Both keep
/// their order.
template <typename Count>
void deal(const SampleLists& all, DrawKey key, const Count& wanted, SampleLists& chosen,
          SampleLists& rest) {
  std::vector<std::int64_t> in;
  std::vector<std::int64_t> out;
  for (std::int64_t k = 0; k < all.size(); ++k) {
    const std::span<const std::int64_t> ids = all.of(k);
    const auto n = static_cast<std::int64_t>(ids.size());
    key.client = static_cast<std::uint64_t>(k);
    const std::vector<std::uint8_t> is_in = random_subset(key, n, wanted(n));
    in.clear();
    out.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) (is_in[i] != 0 ? in : out).push_back(ids[i]);
    chosen.append(in);
    rest.append(out);
  }
}

/// Moves floor(data.validation_fraction n) of each client's n training samples into its validation
/// list.
void set_aside_validation(Partition& partition, const DataOptions& options) {
  if (options.validation_fraction == 0) return;
  if (partition.validation.size() > 0) {
    throw ConfigError(concat("data.validation_fraction = ", options.validation_fraction,
                             ", but data.partition_file = ", options.partition_file,
                             " names validation samples itself; drop the key"));
  }
  const SampleLists all = std::exchange(partition.train, {});
  const auto set_aside = [&](std::int64_t n) {
    return static_cast<std::int64_t>(
        std::floor(options.validation_fraction * static_cast<double>(n)));
  };
  deal(all, {.seed = static_cast<std::uint64_t>(options.seed), .purpose = Purpose::Validation},
       set_aside, partition.validation, partition.train);
  if (!partition.validation.samples.empty()) return;
  throw ConfigError(concat("data.validation_fraction = ", options.validation_fraction,
                           " sets no sample aside: no client has 1 / ", options.validation_fraction,
                           " training samples; give a larger one or more samples"));
}

}  // namespace

Partition make_partition(const DataOptions& options, const Dataset& dataset) {
  check_options(options, dataset);
  Partition partition =
      partitioner_registry().find(options.partition, "data.partition")(options, dataset);
  if (is_added(partitioner_registry(), options.partition)) {
    check_added(partition, options, dataset.num_train() + dataset.num_test());
  }
  set_aside_validation(partition, options);
  return partition;
}

std::string digest_of(const Partition& partition) {
  Digest digest;
  for (const SampleLists* lists : {&partition.train, &partition.test, &partition.validation}) {
    digest.add(lists->offsets);
    digest.add(lists->samples);
  }
  digest.add(partition.edge_of_client);
  return digest.text();
}

Partition tested_on_validation(const Partition& partition) {
  Partition other;
  other.train.offsets.assign(partition.validation.offsets.size(), 0);
  other.test = partition.validation;
  return other;
}

Registry<Partition(const DataOptions&, const Dataset&)>& partitioner_registry() {
  static Registry<Partition(const DataOptions&, const Dataset&)> registry({
#define FEDHPC_PARTITIONER(name, sentence) {#name, sentence, partition_##name},
#include "data/partitioners.def"
#undef FEDHPC_PARTITIONER
  });
  return registry;
}

std::int64_t leaked_samples(const Partition& partition) {
  std::int64_t end = 0;
  const auto tested = {&partition.test, &partition.validation};
  for (const SampleLists* lists : {&partition.train, &partition.test, &partition.validation}) {
    for (const std::int64_t id : lists->samples) end = std::max(end, id + 1);
  }
  // A bit for each sample: even ten million of them are small.
  std::vector<bool> trains(static_cast<std::size_t>(end), false);
  for (const std::int64_t id : partition.train.samples) trains[id] = true;
  std::int64_t leaked = 0;
  for (const SampleLists* lists : tested) {
    for (const std::int64_t id : lists->samples) {
      if (!trains[id]) continue;
      ++leaked;
      trains[id] = false;  // counted
    }
  }
  return leaked;
}

std::int64_t dealt_samples(const DataOptions& options, const Dataset& dataset) {
  return dataset.num_train() + (options.split == DataSplit::Client ? dataset.num_test() : 0);
}

std::vector<std::vector<std::int64_t>> shuffled_by_label(const DataOptions& options,
                                                         const Dataset& dataset,
                                                         PartitionDraw draw) {
  const std::vector<std::int64_t> labels = dataset.labels();
  std::vector<std::vector<std::int64_t>> by_label(static_cast<std::size_t>(dataset.classes()));
  for (std::int64_t s = 0; s < dealt_samples(options, dataset); ++s) {
    by_label[labels[s]].push_back(s);
  }
  for (std::size_t label = 0; label < by_label.size(); ++label) {
    const std::vector<std::int64_t> ascending = by_label[label];
    const DrawKey key{.seed = static_cast<std::uint64_t>(options.seed),
                      .purpose = Purpose::Partition,
                      .pass = static_cast<std::uint64_t>(draw),
                      .client = label};
    const auto order = permutation(key, static_cast<std::int64_t>(ascending.size()));
    for (std::size_t i = 0; i < order.size(); ++i) by_label[label][i] = ascending[order[i]];
  }
  return by_label;
}

Range array_split(std::int64_t n, std::int64_t m, std::int64_t i) {
  const auto begin = [&](std::int64_t part) { return part * (n / m) + std::min(part, n % m); };
  return {begin(i), begin(i + 1)};
}

Partition split_clients(SampleLists owned, const DataOptions& options, Rounding rounding) {
  for (std::int64_t k = 0; k < owned.size(); ++k) {
    std::sort(owned.samples.begin() + owned.offsets[k],
              owned.samples.begin() + owned.offsets[k + 1]);
  }
  Partition partition;
  if (options.split == DataSplit::Official) {
    partition.test.offsets.assign(owned.offsets.size(), 0);
    partition.train = std::move(owned);
    return partition;
  }
  const double half = rounding == Rounding::Nearest ? 0.5 : 0;
  const auto num_train = [&](std::int64_t n) {
    return static_cast<std::int64_t>(
        std::floor(options.train_fraction * static_cast<double>(n) + half));
  };
  std::int64_t total_train = 0;
  for (std::int64_t k = 0; k < owned.size(); ++k) total_train += num_train(owned.count(k));
  partition.train.reserve(owned.size(), total_train);
  partition.test.reserve(owned.size(),
                         static_cast<std::int64_t>(owned.samples.size()) - total_train);
  deal(owned, {.seed = static_cast<std::uint64_t>(options.seed), .purpose = Purpose::Split},
       num_train, partition.train, partition.test);
  return partition;
}

Partition split_clients(const std::vector<std::vector<std::int64_t>>& owned,
                        const DataOptions& options, Rounding rounding) {
  SampleLists lists;
  for (const std::vector<std::int64_t>& ids : owned) lists.append(ids);
  return split_clients(std::move(lists), options, rounding);
}

}  // namespace fedhpc
