// Labels: every client holds data.labels_per_client labels, chosen by data.labels_rule:
//
//   random       label u mod K, the others at random without replacement (NIID-Bench
//   "noniid-#label",
//                Li et al., ICDE 2022)
//   least_used   the labels held by the fewest clients so far, ties to the smaller label (fedmud's
//                public code)
//   consecutive  (u + j) mod K for j = 0, 1, ... (pFedMe's and pFedBayes' generators; sFedHP)
//
// The samples of a label are shuffled and split equally among the clients that hold it, in order of
// clients; a label nobody holds stays unused. With data.train_per_class and data.test_per_class
// each holder takes exactly so many of them instead, and no sample goes to two clients.

#include <algorithm>
#include <numeric>

#include "fedhpc/core/rng.hpp"

#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

using Holders = std::vector<std::vector<std::int64_t>>;  // [K] clients, ascending

std::vector<std::int64_t> random_labels(const DataOptions& options, std::int64_t client,
                                        std::int64_t classes) {
  Draws draws({.seed = static_cast<std::uint64_t>(options.seed),
               .purpose = Purpose::Partition,
               .pass = static_cast<std::uint64_t>(PartitionDraw::LabelChoice),
               .client = static_cast<std::uint64_t>(client)});
  std::vector<std::int64_t> chosen{client % classes};
  while (static_cast<std::int64_t>(chosen.size()) < options.labels_per_client) {
    const std::int64_t label = draws.below(classes);
    if (std::find(chosen.begin(), chosen.end(), label) == chosen.end()) chosen.push_back(label);
  }
  return chosen;
}

std::vector<std::int64_t> least_used_labels(std::int64_t count, const Holders& holders) {
  std::vector<std::int64_t> order(holders.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return holders[a].size() < holders[b].size();
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

std::vector<std::int64_t> consecutive_labels(std::int64_t count, std::int64_t client,
                                             std::int64_t classes) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t j = 0; j < count; ++j) chosen.push_back((client + j) % classes);
  return chosen;
}

Holders choose_labels(const DataOptions& options, std::int64_t classes) {
  if (options.labels_per_client > classes) {
    throw ConfigError(concat("data.labels_per_client = ", options.labels_per_client, ", but ",
                             options.name, " has ", classes, " labels; lower it"));
  }
  Holders holders(static_cast<std::size_t>(classes));
  for (std::int64_t u = 0; u < options.clients; ++u) {
    std::vector<std::int64_t> chosen;
    switch (options.labels_rule) {
      case LabelsRule::Random:
        chosen = random_labels(options, u, classes);
        break;
      case LabelsRule::LeastUsed:
        chosen = least_used_labels(options.labels_per_client, holders);
        break;
      case LabelsRule::Consecutive:
        chosen = consecutive_labels(options.labels_per_client, u, classes);
        break;
    }
    for (const std::int64_t label : chosen) holders[label].push_back(u);
  }
  return holders;
}

/// Each holder of a label takes data.train_per_class and data.test_per_class of its samples.
Partition take_counts(const DataOptions& options, const Holders& holders,
                      const std::vector<std::vector<std::int64_t>>& by_label) {
  const std::int64_t each = options.train_per_class + options.test_per_class;
  std::vector<std::vector<std::int64_t>> train(static_cast<std::size_t>(options.clients));
  std::vector<std::vector<std::int64_t>> test(train.size());
  for (std::size_t label = 0; label < holders.size(); ++label) {
    const auto num_holders = static_cast<std::int64_t>(holders[label].size());
    const auto available = static_cast<std::int64_t>(by_label[label].size());
    if (num_holders * each > available) {
      throw ConfigError(concat(
          "data.train_per_class = ", options.train_per_class,
          " and data.test_per_class = ", options.test_per_class, ": label ", label, " is held by ",
          num_holders, " clients, which need ", num_holders * each, " samples, but ", options.name,
          " has ", available, "; lower the two keys, data.clients or data.labels_per_client"));
    }
    auto next = by_label[label].begin();
    for (const std::int64_t u : holders[label]) {
      train[u].insert(train[u].end(), next, next + options.train_per_class);
      test[u].insert(test[u].end(), next + options.train_per_class, next + each);
      next += each;
    }
  }
  Partition partition;
  for (std::size_t u = 0; u < train.size(); ++u) {
    std::sort(train[u].begin(), train[u].end());
    std::sort(test[u].begin(), test[u].end());
    partition.train.append(train[u]);
    partition.test.append(test[u]);
  }
  return partition;
}

}  // namespace

Partition partition_labels(const DataOptions& options, const Dataset& dataset) {
  const Holders holders = choose_labels(options, dataset.classes());
  const auto by_label = shuffled_by_label(options, dataset, PartitionDraw::LabelOrder);
  if (options.train_per_class > 0) return take_counts(options, holders, by_label);
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(options.clients));
  for (std::size_t label = 0; label < holders.size(); ++label) {
    const auto num_holders = static_cast<std::int64_t>(holders[label].size());
    for (std::int64_t i = 0; i < num_holders; ++i) {
      const auto [begin, end] =
          array_split(static_cast<std::int64_t>(by_label[label].size()), num_holders, i);
      std::vector<std::int64_t>& mine = owned[holders[label][i]];
      mine.insert(mine.end(), by_label[label].begin() + begin, by_label[label].begin() + end);
    }
  }
  return split_clients(owned, options);
}

}  // namespace fedhpc
