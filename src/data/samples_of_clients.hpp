#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "fedhpc/core/checked.hpp"
#include "fedhpc/data/options.hpp"

namespace fedhpc {

/// The numbers of samples that a generator makes for natural clients: those for training client
/// by client, then those of the official test set, a fifth (at least 1) per client.
class SamplesOfClients {
 public:
  explicit SamplesOfClients(const DataOptions& options)
      : clients_(options.clients),
        train_each_(options.samples_per_client),
        test_each_(options.split == DataSplit::Official ? std::max<std::int64_t>(1, train_each_ / 5)
                                                        : 0) {
    checked_product("the samples", {clients_, train_each_ + test_each_});
  }

  std::int64_t num_train() const { return clients_ * train_each_; }
  std::int64_t num_test() const { return clients_ * test_each_; }

  /// A sample's client and its number among all of the client's samples, training first.
  struct Place {
    std::int64_t client;
    std::int64_t number;
  };

  Place place_of(std::int64_t id) const {
    require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
    if (id < num_train()) return {id / train_each_, id % train_each_};
    const std::int64_t test = id - num_train();
    return {test / test_each_, train_each_ + test % test_each_};
  }

  /// The client of every sample: [num_train + num_test].
  std::vector<std::int64_t> clients() const {
    std::vector<std::int64_t> clients;
    clients.reserve(static_cast<std::size_t>(num_train() + num_test()));
    for (std::int64_t id = 0; id < num_train() + num_test(); ++id) {
      clients.push_back(place_of(id).client);
    }
    return clients;
  }

  /// Places in `ids` in ascending order of what `key` gives for the client, the client by default:
  /// what a client's samples have in common is then made once.
  template <typename Key = std::identity>
  std::vector<std::int64_t> by_client(std::span<const std::int64_t> ids, Key key = {}) const {
    std::vector<std::int64_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    const auto of = [&](std::int64_t i) { return key(place_of(ids[i]).client); };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return of(a) < of(b); });
    return order;
  }

 private:
  std::int64_t clients_;
  std::int64_t train_each_;
  std::int64_t test_each_;
};

}  // namespace fedhpc
