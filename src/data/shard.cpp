#include "fedhpc/data/shard.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fedhpc {

namespace {

double standardised(double pixel, Standardize rule) {
  switch (rule) {
    case Standardize::None:
      return pixel;
    case Standardize::Unit:
      return pixel / 255;
    case Standardize::Half:
      return (pixel / 255 - 0.5) / 0.5;
    default:  // by column
      return 0;
  }
}

/// The same in whole numbers, which float32 divides to the correctly rounded result.
PixelFormula pixel_formula(Standardize rule) {
  switch (rule) {
    case Standardize::None:
      return {.scale = 1, .shift = 0, .divisor = 1};
    case Standardize::Unit:
      return {.scale = 1, .shift = 0, .divisor = 255};
    case Standardize::Half:
      return {.scale = 2, .shift = -255, .divisor = 255};
    default:  // by column
      return {.scale = 0, .shift = 0, .divisor = 1};
  }
}

ImageShape image_shape(const Dataset& dataset) {
  const std::vector<std::int64_t> shape = dataset.shape();
  if (shape.size() != 3) return {};
  return {.channels = shape[0], .height = shape[1], .width = shape[2]};
}

/// The first row of each client's stack and, last, the end of all: [clients + 1].
std::vector<std::int64_t> offsets_of(const SampleLists& lists,
                                     const std::vector<std::int64_t>& clients) {
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(clients.size() + 1);
  for (const std::int64_t client : clients) offsets.push_back(offsets.back() + lists.count(client));
  return offsets;
}

/// The samples of some clients, one client after the other.
std::vector<std::int64_t> stacked(const SampleLists& lists, std::span<const std::int64_t> clients) {
  std::vector<std::int64_t> samples;
  for (const std::int64_t client : clients) {
    const std::span<const std::int64_t> own = lists.of(client);
    samples.insert(samples.end(), own.begin(), own.end());
  }
  return samples;
}

std::int64_t bytes_of(const Samples& samples) {
  const std::size_t targets = samples.targets.defined() ? samples.targets.nbytes() : 0;
  return static_cast<std::int64_t>(samples.features.nbytes() + samples.labels.nbytes() + targets);
}

void check_ascending(const std::vector<std::int64_t>& clients) {
  require(
      std::adjacent_find(clients.begin(), clients.end(), std::greater_equal<>()) == clients.end(),
      "a shard's clients have ascending ids");
}

}  // namespace

Shard::Shard(const Dataset& dataset, const Preparation& preparation, DType dtype)
    : dtype_(dtype),
      preparation_(preparation),
      features_(dataset.features()),
      image_(image_shape(dataset)),
      classes_(dataset.classes()),
      targets_(dataset.targets()),
      formula_(pixel_formula(preparation.rule)) {
  const bool by_column = preparation.rule == Standardize::Scalar ||
                         preparation.rule == Standardize::Channel ||
                         preparation.rule == Standardize::Pixel;
  const auto columns = by_column ? static_cast<std::size_t>(features_) : 0;
  require(preparation.mean.size() == columns && preparation.factor.size() == columns,
          "a standardisation by column has constants for every column");
  for (std::size_t pixel = 0; pixel < table_.size(); ++pixel) {
    table_[pixel] = standardised(static_cast<double>(pixel), preparation.rule);
    require(formula_(static_cast<float>(pixel)) == static_cast<float>(table_[pixel]),
            "pixels are standardised in float32 as in float64, rounded");
  }
  train_ = load(dataset, {});
  test_ = train_;
}

Shard::Shard(const Dataset& dataset, const Partition& partition, std::vector<std::int64_t> clients,
             const Preparation& preparation, DType dtype, std::int64_t held_bytes, Load load)
    : Shard(dataset, preparation, dtype) {
  check_ascending(clients);
  clients_ = std::move(clients);
  partition_ = &partition;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    largest_client_ = std::max(largest_client_, partition.train.count(client));
  }
  train_offsets_ = offsets_of(partition.train, clients_);
  test_offsets_ = offsets_of(partition.test, clients_);
  if (dataset.on_demand() && exceeds(train_rows() + test_rows(), held_bytes)) source_ = &dataset;
  if (load == Load::Now) load_(dataset);
}

void Shard::load_(const Dataset& dataset, void* memory) {
  if (on_demand()) return;
  const std::vector<std::int64_t> train = stacked(partition_->train, clients_);
  const std::vector<std::int64_t> test = stacked(partition_->test, clients_);
  if (memory == nullptr) {
    train_ = load(dataset, train);
    test_ = load(dataset, test);
    return;
  }
  const Stacks places = stacks(train_rows(), test_rows());
  Samples in_place = at(memory, places.train_targets, places.train_features, train_rows());
  load_into(dataset, train, in_place);
  train_ = in_place;
  in_place = at(memory, places.test_targets, places.test_features, test_rows());
  load_into(dataset, test, in_place);
  test_ = in_place;
}

Shard Shard::server(const Dataset& dataset, std::int64_t first, std::int64_t last,
                    const Preparation& preparation, DType dtype, std::int64_t held_bytes) {
  require(0 <= first && first <= last && last <= dataset.num_test(),
          "the test set has these samples");
  Shard shard(dataset, preparation, dtype);
  shard.clients_.assign(1, 0);  // not "= {0}", of which GCC 12.4 warns
  shard.train_offsets_ = {0, 0};
  shard.test_offsets_ = {0, last - first};
  shard.first_test_ = dataset.num_train() + first;
  if (dataset.on_demand() && shard.exceeds(last - first, held_bytes)) {
    shard.source_ = &dataset;
    return shard;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(last - first));
  std::iota(ids.begin(), ids.end(), shard.first_test_);
  shard.test_ = shard.load(dataset, ids);
  return shard;
}

Samples Shard::load(const Dataset& dataset, std::span<const std::int64_t> ids) const {
  Samples samples = dataset.read(ids);
  require(samples.features.is_contiguous() && samples.features.dim() == 2 &&
              samples.features.size(1) == features_,
          "a data set gives contiguous features [S, D]");
  require(samples.targets.defined() == (targets_.kind != Targets::Kind::Label),
          "a data set gives the targets it names");
  if (targets_.kind == Targets::Kind::Numbers) {
    samples.targets = samples.targets.to(scalar_type(dtype_));
  }
  if (samples.features.scalar_type() == at::kByte) return samples;
  const Standardize rule = preparation_.rule;
  if (rule == Standardize::Half || rule == Standardize::Scalar || rule == Standardize::Channel) {
    throw ConfigError(
        "data.standardize = half, scalar and channel are defined for pixels, and this data set has "
        "real numbers; use none or unit, which take them as they are, or pixel");
  }
  if (rule == Standardize::Pixel) {
    auto* x = samples.features.data_ptr<double>();
    for (std::int64_t s = 0; s < samples.features.size(0); ++s, x += features_) {
      for (std::int64_t d = 0; d < features_; ++d) {
        x[d] = (x[d] - preparation_.mean[d]) * preparation_.factor[d];
      }
    }
  }
  samples.features = samples.features.to(scalar_type(dtype_));
  return samples;
}

std::shared_ptr<const DeviceSamples> Shard::on_device(const Samples& samples) const {
  return std::make_shared<const DeviceSamples>(samples, preparation_, table_, image_, device_);
}

void Shard::use_device_(at::Device device) {
  device_ = device;
  if (device_.is_cpu()) return;
  train_on_device_ = on_device(train_);
  test_on_device_ = on_device(test_);
}

bool Shard::holds(std::int64_t client) const {
  return std::binary_search(clients_.begin(), clients_.end(), client);
}

std::size_t Shard::index(std::int64_t client) const {
  const auto place = std::lower_bound(clients_.begin(), clients_.end(), client);
  require(place != clients_.end() && *place == client, "a shard is asked for its own clients only");
  return static_cast<std::size_t>(place - clients_.begin());
}

std::int64_t Shard::train_count(std::int64_t client) const {
  if (const Shard* other = guest(client)) return other->train_count(client);
  return train_offsets_[index(client) + 1] - train_offsets_[index(client)];
}

std::int64_t Shard::test_count(std::int64_t client) const {
  if (const Shard* other = guest(client)) return other->test_count(client);
  return test_offsets_[index(client) + 1] - test_offsets_[index(client)];
}

std::vector<std::int64_t> Shard::label_histogram(std::int64_t client) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes_), 0);
  const auto add = [&](const Samples& samples, std::int64_t begin, std::int64_t count) {
    const auto* labels = samples.labels.const_data_ptr<std::int64_t>() + begin;
    for (std::int64_t s = 0; s < count; ++s) ++counts[labels[s]];
  };
  if (on_demand()) {
    std::vector<std::int64_t> ids = partition_ == nullptr
                                        ? std::vector<std::int64_t>{}
                                        : stacked(partition_->train, {&client, 1});
    const std::vector<std::int64_t> test =
        test_ids(test_begin(client), test_begin(client) + test_count(client));
    ids.insert(ids.end(), test.begin(), test.end());
    const Samples samples = source_->read(ids);
    add(samples, 0, samples.labels.size(0));
    return counts;
  }
  add(train_, train_begin(client), train_count(client));
  add(test_, test_begin(client), test_count(client));
  return counts;
}

bool Shard::exceeds(std::int64_t rows, std::int64_t held_bytes) const {
  const auto value = static_cast<std::int64_t>(train_.features.element_size());
  return rows * features_ * value > held_bytes;
}

std::vector<std::int64_t> Shard::test_ids(std::int64_t row_begin, std::int64_t row_end) const {
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(row_end - row_begin));
  if (partition_ == nullptr) {
    for (std::int64_t row = row_begin; row < row_end; ++row) ids.push_back(first_test_ + row);
    return ids;
  }
  // The last client that begins at this row or before it; others that begin here have no samples.
  auto place = std::upper_bound(test_offsets_.begin(), test_offsets_.end(), row_begin) -
               test_offsets_.begin() - 1;
  for (std::int64_t row = row_begin; row < row_end; ++place) {
    const std::int64_t end = std::min(row_end, test_offsets_[place + 1]);
    const std::span<const std::int64_t> own = partition_->test.of(clients_[place]);
    const std::int64_t begin = test_offsets_[place];
    ids.insert(ids.end(), own.begin() + (row - begin), own.begin() + (end - begin));
    row = end;
  }
  return ids;
}

Shard Shard::in_hand(std::vector<std::int64_t> clients) const {
  require(on_demand() && partition_ != nullptr, "clients' samples are made by a shard on demand");
  check_ascending(clients);
  for (const std::int64_t client : clients) {
    require(holds(client) || guest(client) != nullptr,
            "a shard is asked for its own clients and its guests only");
  }
  Shard part(*source_, preparation_, dtype_);
  part.clients_ = std::move(clients);
  part.train_offsets_ = offsets_of(partition_->train, part.clients_);
  part.test_offsets_.assign(part.train_offsets_.size(), 0);
  part.train_ = load(*source_, stacked(partition_->train, part.clients_));
  part.use_device_(device_);
  return part;
}

std::int64_t Shard::memory_bytes() const {
  const std::size_t constants = preparation_.mean.size() + preparation_.factor.size();
  return bytes_of(train_) + bytes_of(test_) +
         static_cast<std::int64_t>(8 * (constants + 3 * clients_.size()));
}

}  // namespace fedhpc
