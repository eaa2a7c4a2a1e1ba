#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"
#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// A draw of docs/semantics.md, section 1: purpose 2.
DrawKey key_of(const DataOptions& options, std::uint64_t pass, std::uint64_t epoch,
               std::size_t label) {
  return {.seed = static_cast<std::uint64_t>(options.seed),
          .purpose = Purpose::Partition,
          .pass = pass,
          .epoch = epoch,
          .client = label};
}

struct Dealt {
  std::vector<Ids> owned;  // of each client, ascending
  std::uint64_t tries = 0;
};

/// What NIID-Bench's loop deals, try by try.
Dealt dealt_by(const DataOptions& options, const TableDataset& data) {
  const auto n = static_cast<double>(data.labels().size());
  const auto clients = static_cast<std::size_t>(options.clients);
  for (std::uint64_t attempt = 0;; ++attempt) {
    std::vector<Ids> dealt(clients);
    for (std::size_t label = 0; label < static_cast<std::size_t>(data.classes()); ++label) {
      Ids of_label;
      for (std::size_t s = 0; s < data.labels().size(); ++s) {
        if (data.labels()[s] == static_cast<std::int64_t>(label)) of_label.push_back(s);
      }
      const auto size = static_cast<std::int64_t>(of_label.size());
      const Ids order = permutation(key_of(options, 2, 0, label), size);
      Draws draws(key_of(options, 1, attempt, label));
      std::vector<double> shares;
      for (const Ids& client : dealt) {
        const double drawn = draws.gamma(options.alpha);
        shares.push_back(static_cast<double>(client.size()) < n / double(clients) ? drawn : 0);
      }
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      double cumulated = 0;
      std::int64_t first = 0;
      for (std::size_t k = 0; k < clients; ++k) {
        cumulated += shares[k] / sum;
        const bool last = k + 1 == clients;  // takes what rounding leaves over
        const auto end = last ? size : static_cast<std::int64_t>(cumulated * double(size));
        for (; first < end; ++first) dealt[k].push_back(of_label[order[first]]);
      }
    }
    const auto least = std::ranges::min(dealt, {}, &Ids::size).size();
    if (static_cast<std::int64_t>(least) < options.min_samples) continue;
    for (Ids& client : dealt) std::ranges::sort(client);
    return {.owned = dealt, .tries = attempt + 1};
  }
}

TEST(DirichletTest, DealsTheSamplesOfItsDefinition) {
  const TableDataset data = balanced(6, 50);
  std::uint64_t most_tries = 0;
  for (const double alpha : {0.1, 0.5, 3.0}) {
    DataOptions options = options_for("dirichlet", 5);
    options.alpha = alpha;
    options.min_samples = 35;
    const Dealt expected = dealt_by(options, data);
    const Partition partition = make_partition(options, data);
    for (std::int64_t k = 0; k < options.clients; ++k) {
      EXPECT_EQ(owned(partition, k), expected.owned[static_cast<std::size_t>(k)])
          << "alpha = " << alpha << ", client " << k;
    }
    most_tries = std::max(most_tries, expected.tries);
  }
  EXPECT_GT(most_tries, 1U) << "a try was repeated";
}

}  // namespace
}  // namespace fedhpc
