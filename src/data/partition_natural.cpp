// Natural: the data set says which client each sample belongs to.

#include <algorithm>
#include <numeric>

#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

/// The samples 0 to count - 1 of each client, ascending: a counting sort, because with a million
/// clients a list of its own for each of them takes longer and several times the memory.
SampleLists grouped(const std::vector<std::int64_t>& client_of, std::int64_t clients,
                    std::int64_t count) {
  SampleLists owned;
  owned.offsets.assign(static_cast<std::size_t>(clients + 1), 0);
  for (std::int64_t s = 0; s < count; ++s) ++owned.offsets[client_of[s] + 1];
  std::partial_sum(owned.offsets.begin(), owned.offsets.end(), owned.offsets.begin());
  std::vector<std::int64_t> next(owned.offsets.begin(), owned.offsets.end() - 1);
  owned.samples.resize(static_cast<std::size_t>(count));
  for (std::int64_t s = 0; s < count; ++s) owned.samples[next[client_of[s]]++] = s;
  return owned;
}

/// The samples of each natural client. (A function of its own, so that the client of every sample
/// is forgotten before they are split.)
SampleLists natural_lists(const DataOptions& options, const Dataset& dataset) {
  const std::vector<std::int64_t> client_of = dataset.natural_clients();
  if (client_of.empty()) {
    throw ConfigError(concat("data.partition = natural needs data made of clients, and ",
                             options.name, " is not; choose another data.partition"));
  }
  const std::int64_t clients = *std::max_element(client_of.begin(), client_of.end()) + 1;
  if (clients != options.clients) {
    const bool from_one = std::ranges::find(client_of, 0) == client_of.end();
    throw ConfigError(concat("data.clients = ", options.clients, ", but ", options.name, " has ",
                             clients, " natural clients; set data.clients = ", clients,
                             from_one ? ", or number them from 0: client 0 has no sample" : ""));
  }
  return grouped(client_of, clients, dealt_samples(options, dataset));
}

}  // namespace

Partition partition_natural(const DataOptions& options, const Dataset& dataset) {
  return split_clients(natural_lists(options, dataset), options);
}

}  // namespace fedhpc
