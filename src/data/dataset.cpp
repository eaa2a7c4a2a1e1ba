#include "fedhpc/data/dataset.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "core/digest.hpp"
#include "core/or_added.hpp"
#include "data/checked_dataset.hpp"
#include "data/datasets.hpp"

namespace fedhpc {

std::int64_t Dataset::features() const {
  const std::vector<std::int64_t> sizes = shape();
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool Targets::is_binary() const {
  return kind == Kind::Whole && classes <= 2 && values.front() >= 0 && values.back() <= 1;
}

Registry<std::unique_ptr<Dataset>(const DataOptions&)>& dataset_registry() {
  static Registry<std::unique_ptr<Dataset>(const DataOptions&)> registry({
#define FEDHPC_DATASET(name, sentence) {#name, sentence, open_##name},
#include "data/datasets.def"
#undef FEDHPC_DATASET
  });
  return registry;
}

std::unique_ptr<Dataset> open_dataset(const DataOptions& options) {
  std::unique_ptr<Dataset> data = dataset_registry().find(options.name, "data.name")(options);
  if (!is_added(dataset_registry(), options.name)) return data;
  return std::make_unique<CheckedDataset>(options.name, std::move(data));
}

namespace {

/// Adds samples of a dataset; returns their bytes.
std::int64_t add_samples(Digest& digest, const Dataset& dataset,
                         std::span<const std::int64_t> ids) {
  const Samples some = dataset.read(ids);
  std::size_t bytes = 0;
  for (const Tensor& values : {some.features.contiguous(), some.told().contiguous()}) {
    digest.add(values.const_data_ptr(), values.nbytes());
    bytes += values.nbytes();
  }
  return static_cast<std::int64_t>(bytes);
}

/// The digest of all samples of a dataset, or of an even share of those that are more than kBytes.
std::string digest_of_samples(const Dataset& dataset) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 28;
  constexpr std::int64_t kTogether = 256;
  const std::int64_t count = dataset.num_train() + dataset.num_test();
  Digest digest;
  std::int64_t step = kTogether;
  for (std::int64_t first = 0; first < count; first += step) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kTogether, count - first)));
    std::iota(ids.begin(), ids.end(), first);
    const std::int64_t bytes = add_samples(digest, dataset, ids);
    if (first > 0) continue;
    const std::int64_t all = bytes * count / static_cast<std::int64_t>(ids.size());
    step = kTogether * std::max<std::int64_t>(1, (all + kBytes - 1) / kBytes);
  }
  return digest.text();
}

}  // namespace

std::string digest_of(const Dataset& dataset) {
  if (dataset.on_demand()) return {};
  constexpr std::int64_t kSamples = 64;
  Digest digest;
  digest.add(dataset.shape());
  digest.add(dataset.labels());
  const Targets targets = dataset.targets();
  digest.add(std::vector<double>{targets.mean_square, static_cast<double>(dataset.num_train())});
  const std::int64_t count = dataset.num_train() + dataset.num_test();
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < kSamples; ++i) ids.push_back(i * (count - 1) / (kSamples - 1));
  add_samples(digest, dataset, ids);
  return digest.text() + digest_of_samples(dataset);
}

bool same_data(const std::string& stored, const std::string& now) {
  return stored == now || (stored.size() == Digest::kDigits && now.starts_with(stored));
}

std::string data_directory(const DataOptions& options) {
  if (!options.dir.empty()) return options.dir;
  const char* directory = std::getenv("FEDHPC_DATA");
  if (directory != nullptr && *directory != '\0') return directory;
  throw ConfigError(
      concat("data.name = ", options.name,
             " is read from files, but neither the key data.dir nor the environment "
             "variable FEDHPC_DATA says where they are; set one of them to a folder"));
}

const std::string& data_file(const DataOptions& options) {
  if (!options.file.empty()) return options.file;
  throw ConfigError(concat("data.name = ", options.name,
                           " needs the key data.file: the path of the file to read"));
}

}  // namespace fedhpc
