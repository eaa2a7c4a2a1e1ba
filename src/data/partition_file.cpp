// The partition as a file (docs/semantics.md, 2): read, check, write.

#include <algorithm>
#include <cmath>
#include <limits>

#include "fedhpc/core/log.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "core/exact_numbers.hpp"
#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

/// A data set of whole numbers, all of them written. Floats will do where they are whole.
std::vector<std::int64_t> read_whole(const h5::Handle& file, const std::string& path,
                                     const std::string& name) {
  const auto fail = [&](const auto&... what) {
    throw DataError(concat("partition file '", path, "', data set '", name, "': ", what...));
  };
  const h5::Handle dataset = h5::open_dataset(file, name);
  try {
    h5::check_written(dataset);
  } catch (const Error& error) {
    fail(error.what());
  }
  if (!h5::holds_floats(dataset)) return h5::read_vector<std::int64_t>(file, name);
  std::vector<std::int64_t> whole;
  for (const double number : h5::read_vector<double>(file, name)) {
    if (!(std::abs(number) <= kLargestExact && number == std::floor(number))) {
      fail("found ", number, " at entry ", whole.size(), ", expected a whole number");
    }
    whole.push_back(static_cast<std::int64_t>(number));
  }
  return whole;
}

/// The edge of each client; whether there are as many is for check_partition.
std::vector<std::int32_t> read_edges(const h5::Handle& file, const std::string& path,
                                     const std::string& name) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> edges;
  for (const std::int64_t edge : read_whole(file, path, name)) {
    if (edge < 0 || edge > kLast) {
      throw DataError(concat("partition file '", path, "', data set '", name, "': found edge ",
                             edge, ", expected ", edge < 0 ? "0 or above" : "less than 2^31"));
    }
    edges.push_back(static_cast<std::int32_t>(edge));
  }
  return edges;
}

/// One pair of data sets NAME_offsets and NAME_samples.
SampleLists read_lists(const h5::Handle& file, const std::string& path, const std::string& name) {
  return {.offsets = read_whole(file, path, name + "_offsets"),
          .samples = read_whole(file, path, name + "_samples")};
}

/// What `read` returns for the open file and the prefix of its data sets; HDF5's complaints (no
/// such file, not HDF5, a data set that is missing) become DataErrors.
template <typename Read>
auto read_checked(const std::string& path, const Read& read) {
  try {
    const h5::Handle file = h5::open_input(path);
    return read(file, std::string(h5::exists(file, "partition") ? "partition/" : ""));
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(concat("partition file '", path, "' cannot be read: ", error.what(),
                           "; give a result file written with run.save=partition"));
  }
}

}  // namespace

Partition read_partition(const std::string& path, std::int64_t num_samples) {
  return read_checked(path, [&](const h5::Handle& file, const std::string& prefix) {
    Partition partition;
    partition.train = read_lists(file, path, prefix + "train");
    partition.test = read_lists(file, path, prefix + "test");
    if (h5::exists(file, prefix + "validation_offsets")) {
      partition.validation = read_lists(file, path, prefix + "validation");
    }
    if (h5::exists(file, prefix + "edge_of_client")) {
      partition.edge_of_client = read_edges(file, path, prefix + "edge_of_client");
    }
    check_partition(partition, num_samples, [&](const std::string& list) {
      return concat("partition file '", path, "', data set '", prefix, list, "'");
    });
    return partition;
  });
}

std::int64_t clients_in_partition_file(const std::string& path) {
  return read_checked(path, [](const h5::Handle& file, const std::string& prefix) {
    const std::vector<hsize_t> shape =
        h5::shape_of(h5::open_dataset(file, prefix + "train_offsets"));
    return shape.empty() ? 1
                         : std::max<std::int64_t>(static_cast<std::int64_t>(shape.front()) - 1, 1);
  });
}

void write_partition(const h5::Handle& location, const Partition& partition) {
  const auto write = [&](const std::string& name, const auto& values, const std::string& unit,
                         const std::string& meaning) {
    h5::write_vector(location, name, values);
    const h5::Handle dataset = h5::open_dataset(location, name);
    h5::write_attribute(dataset, "units", unit);
    h5::write_attribute(dataset, "meaning", meaning);
  };
  const auto write_lists = [&](const std::string& name, const SampleLists& lists,
                               const std::string& use) {
    write(name + "_offsets", lists.offsets, "entries",
          concat("[clients + 1]; entries offsets[i] to offsets[i + 1] - 1 of ", name,
                 "_samples are those of client i"));
    write(name + "_samples", lists.samples, "sample number",
          concat("samples that clients ", use, ", client by client; counted from 0 through the ",
                 "official training set and then the official test set"));
  };
  write_lists("train", partition.train, "train on");
  write_lists("test", partition.test, "are tested on");
  if (partition.validation.size() > 0) {
    write_lists("validation", partition.validation, "set aside for validation");
  }
  if (!partition.edge_of_client.empty()) {
    write("edge_of_client", partition.edge_of_client, "edge number",
          "[clients]; the edge of each client, from 0");
  }
}

namespace {

/// A sentence where the clients of a result file had other labels than these samples give them.
std::string other_labels(const std::string& path, const Partition& partition,
                         const Dataset& dataset) {
  constexpr hsize_t kMostClients = 4096;  // that are looked at
  const char* name = "clients/label_histogram";
  const h5::Handle file = h5::open_input(path);
  if (!h5::exists(file, name)) return {};  // of another source
  const h5::Handle histograms = h5::open_dataset(file, name);
  const std::vector<hsize_t> shape = h5::shape_of(histograms);
  const auto clients = static_cast<hsize_t>(partition.train.size());
  if (shape.size() != 2 || shape[0] != clients || !h5::holds_numbers(histograms)) return {};
  const hsize_t seen = std::min(clients, kMostClients);
  std::vector<std::int64_t> then(seen * shape[1]);
  h5::read_rows(histograms, h5::type_of<std::int64_t>(), 0, seen, then.data());
  const std::vector<std::int64_t>& labels = dataset.labels();
  std::int64_t others = 0;
  for (hsize_t client = 0; client < seen; ++client) {
    std::vector<std::int64_t> now(std::max(shape[1], static_cast<hsize_t>(dataset.classes())));
    for (const SampleLists* part : {&partition.train, &partition.test, &partition.validation}) {
      if (part->size() == 0) continue;
      for (const std::int64_t id : part->of(static_cast<std::int64_t>(client))) {
        ++now[static_cast<std::size_t>(labels[static_cast<std::size_t>(id)])];
      }
    }
    std::vector<std::int64_t> before(
        then.begin() + static_cast<std::ptrdiff_t>(client * shape[1]),
        then.begin() + static_cast<std::ptrdiff_t>((client + 1) * shape[1]));
    before.resize(now.size());
    others += before != now ? 1 : 0;
  }
  if (others == 0) return {};
  return concat(
      "data.partition_file = ", path, " is of other data: ", others, " of ", seen,
      " clients had other labels there. Give the data of that run; made data change with ",
      "data.seed, which follows run.seed unless it is set");
}

}  // namespace

Partition partition_file(const DataOptions& options, const Dataset& dataset) {
  Partition partition =
      read_partition(options.partition_file, dataset.num_train() + dataset.num_test());
  run_log().of_run(LogLevel::Warning, other_labels(options.partition_file, partition, dataset));
  run_log().of_run(
      LogLevel::Warning,
      repeated_samples(concat("data.partition_file = ", options.partition_file), partition));
  if (options.split == DataSplit::Client) return partition;
  const auto in_training_set = [&](const SampleLists& lists) {
    return std::ranges::all_of(lists.samples,
                               [&](std::int64_t id) { return id < dataset.num_train(); });
  };
  const bool within = in_training_set(partition.train) && in_training_set(partition.validation);
  if (!within || !partition.test.samples.empty()) {
    throw ConfigError(concat(
        "data.split = official, but data.partition_file = ", options.partition_file,
        within ? " gives clients test samples" : " trains or validates on official test samples",
        "; use data.split = client or another file"));
  }
  return partition;
}

}  // namespace fedhpc
