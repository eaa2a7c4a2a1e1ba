// Natural: the data set says which client each sample belongs to.

#include <algorithm>

#include "data/partitioners.hpp"

namespace fedhpc {

Partition partition_natural(const DataOptions& options, const Dataset& dataset) {
  const std::vector<std::int64_t> client_of = dataset.natural_clients();
  if (client_of.empty()) {
    throw ConfigError(concat("data.partition = natural needs data made of clients, and ",
                             options.name, " is not; choose another data.partition"));
  }
  const std::int64_t clients = *std::max_element(client_of.begin(), client_of.end()) + 1;
  if (clients != options.clients) {
    throw ConfigError(concat("data.clients = ", options.clients, ", but ", options.name, " has ",
                             clients, " natural clients; set data.clients = ", clients));
  }
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(clients));
  for (std::int64_t s = 0; s < dealt_samples(options, dataset); ++s) {
    owned[client_of[s]].push_back(s);
  }
  return split_clients(owned, options);
}

}  // namespace fedhpc
