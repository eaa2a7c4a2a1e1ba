// What every partition has to be that is not fedhpc's own: of a file, or of a plug-in.

#include <algorithm>

#include "fedhpc/core/log.hpp"

#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

void check_lists(const SampleLists& lists, const std::string& name, std::int64_t num_samples,
                 const NamesLists& named) {
  const auto fail = [&](const std::string& list, const auto&... what) {
    throw DataError(concat(named(name + list), ": ", what...));
  };
  if (lists.offsets.size() < 2) fail("_offsets", "found no client, expected at least one");
  if (lists.offsets.front() != 0) {
    fail("_offsets", "found ", lists.offsets.front(), " as first entry, expected 0");
  }
  const auto falls = std::is_sorted_until(lists.offsets.begin(), lists.offsets.end());
  if (falls != lists.offsets.end()) {
    fail("_offsets", "entry ", falls - lists.offsets.begin(), " falls to ", *falls,
         ", expected ascending offsets");
  }
  if (lists.offsets.back() != static_cast<std::int64_t>(lists.samples.size())) {
    fail("_samples", "found ", lists.samples.size(), " samples, expected ", lists.offsets.back(),
         " as the last offset says");
  }
  for (std::size_t i = 0; i < lists.samples.size(); ++i) {
    if (lists.samples[i] < 0 || lists.samples[i] >= num_samples) {
      fail("_samples", "found sample ", lists.samples[i], " at entry ", i, ", expected 0 to ",
           num_samples - 1);
    }
  }
}

}  // namespace

void check_partition(const Partition& partition, std::int64_t num_samples,
                     const NamesLists& named) {
  const std::int64_t clients = partition.train.size();
  const auto check = [&](const SampleLists& lists, const std::string& name) {
    check_lists(lists, name, num_samples, named);
    if (lists.size() == clients) return;
    throw DataError(concat(named(name + "_offsets"), ": found ", lists.size(),
                           " clients, expected ", clients, " as in train_offsets"));
  };
  check(partition.train, "train");
  check(partition.test, "test");
  if (partition.validation.size() > 0) check(partition.validation, "validation");
  const std::vector<std::int32_t>& edges = partition.edge_of_client;
  if (edges.empty() || std::ssize(edges) == clients) return;
  throw DataError(
      concat(named("edge_of_client"), ": found ", edges.size(), " clients, expected ", clients));
}

std::string repeated_samples(const std::string& source, const Partition& partition) {
  std::int64_t repeated = 0;
  std::vector<std::int64_t> ids;
  for (const SampleLists* lists : {&partition.train, &partition.test, &partition.validation}) {
    for (std::int64_t client = 0; client < lists->size(); ++client) {
      const auto of_client = lists->of(client);
      ids.assign(of_client.begin(), of_client.end());
      std::ranges::sort(ids);
      repeated += std::ranges::ssize(std::ranges::unique(ids));
    }
  }
  if (repeated == 0) return {};
  return concat(source, " gives clients samples that they have already, ", repeated,
                " times; such a sample counts as often as it is listed");
}

void check_added(const Partition& partition, const DataOptions& options, std::int64_t num_samples) {
  const std::string source = concat("data.partition = ", options.partition);
  check_partition(partition, num_samples,
                  [&](const std::string& list) { return concat(source, ", list '", list, "'"); });
  if (partition.clients() != options.clients) {
    throw DataError(concat(source, " has made lists of ", partition.clients(),
                           " clients, expected data.clients = ", options.clients));
  }
  run_log().of_run(LogLevel::Warning, repeated_samples(source, partition));
}

}  // namespace fedhpc
