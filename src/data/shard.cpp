#include "fedhpc/data/shard.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <type_traits>

#include <ATen/ops/empty.h>

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

ImageSize image_size(const Dataset& dataset) {
  const std::vector<std::int64_t> shape = dataset.shape();
  if (shape.size() != 3) return {};
  return {.channels = shape[0], .height = shape[1], .width = shape[2]};
}

/// The samples of some clients, one client after the other.
struct Stack {
  std::vector<std::int64_t> offsets{0};  // [clients + 1]
  std::vector<std::int64_t> samples;
};

Stack stack_of(const SampleLists& lists, const std::vector<std::int64_t>& clients) {
  Stack stack;
  for (const std::int64_t client : clients) {
    const std::span<const std::int64_t> own = lists.of(client);
    stack.samples.insert(stack.samples.end(), own.begin(), own.end());
    stack.offsets.push_back(static_cast<std::int64_t>(stack.samples.size()));
  }
  return stack;
}

std::int64_t bytes_of(const Samples& samples) {
  return static_cast<std::int64_t>(samples.features.nbytes() + samples.labels.nbytes());
}

void check_stack(const Tensor& stack, std::int64_t c, std::int64_t batch_size) {
  require(stack.is_cpu() && stack.dim() >= 2 && 0 <= c && c < stack.size(0) &&
              batch_size <= stack.size(1),
          "a batch fits its row of a host stack [C, B, ...]");
}

}  // namespace

Shard::Shard(const Dataset& dataset, const Preparation& preparation, DType dtype)
    : dtype_(dtype),
      preparation_(preparation),
      features_(dataset.features()),
      image_(image_size(dataset)),
      classes_(dataset.classes()),
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
}

Shard::Shard(const Dataset& dataset, const Partition& partition, std::vector<std::int64_t> clients,
             const Preparation& preparation, DType dtype)
    : Shard(dataset, preparation, dtype) {
  require(
      std::adjacent_find(clients.begin(), clients.end(), std::greater_equal<>()) == clients.end(),
      "a shard's clients have ascending ids");
  clients_ = std::move(clients);
  Stack train = stack_of(partition.train, clients_);
  Stack test = stack_of(partition.test, clients_);
  train_ = load(dataset, train.samples);
  test_ = load(dataset, test.samples);
  train_offsets_ = std::move(train.offsets);
  test_offsets_ = std::move(test.offsets);
}

Shard Shard::server(const Dataset& dataset, std::int64_t first, std::int64_t last,
                    const Preparation& preparation, DType dtype) {
  require(0 <= first && first <= last && last <= dataset.num_test(),
          "the test set has these samples");
  std::vector<std::int64_t> ids(static_cast<std::size_t>(last - first));
  std::iota(ids.begin(), ids.end(), dataset.num_train() + first);
  Shard shard(dataset, preparation, dtype);
  shard.clients_ = {0};
  shard.train_ = shard.load(dataset, {});
  shard.test_ = shard.load(dataset, ids);
  shard.train_offsets_ = {0, 0};
  shard.test_offsets_ = {0, last - first};
  return shard;
}

Samples Shard::load(const Dataset& dataset, std::span<const std::int64_t> ids) const {
  Samples samples = dataset.read(ids);
  require(samples.features.is_contiguous() && samples.features.dim() == 2 &&
              samples.features.size(1) == features_,
          "a data set gives contiguous features [S, D]");
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

bool Shard::holds(std::int64_t client) const {
  return std::binary_search(clients_.begin(), clients_.end(), client);
}

std::size_t Shard::index(std::int64_t client) const {
  const auto place = std::lower_bound(clients_.begin(), clients_.end(), client);
  require(place != clients_.end() && *place == client, "a shard is asked for its own clients only");
  return static_cast<std::size_t>(place - clients_.begin());
}

std::int64_t Shard::train_count(std::int64_t client) const {
  return train_offsets_[index(client) + 1] - train_offsets_[index(client)];
}

std::int64_t Shard::test_count(std::int64_t client) const {
  return test_offsets_[index(client) + 1] - test_offsets_[index(client)];
}

std::vector<std::int64_t> Shard::label_histogram(std::int64_t client) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes_), 0);
  const auto* train = train_.labels.const_data_ptr<std::int64_t>() + train_begin(client);
  const auto* test = test_.labels.const_data_ptr<std::int64_t>() + test_begin(client);
  for (std::int64_t s = 0; s < train_count(client); ++s) ++counts[train[s]];
  for (std::int64_t s = 0; s < test_count(client); ++s) ++counts[test[s]];
  return counts;
}

std::int64_t Shard::memory_bytes() const {
  const std::size_t constants = preparation_.mean.size() + preparation_.factor.size();
  return bytes_of(train_) + bytes_of(test_) +
         static_cast<std::int64_t>(8 * (constants + 3 * clients_.size()));
}

template <typename T>
void Shard::standardise(const std::uint8_t* pixels, T* out) const {
  if (!preparation_.mean.empty()) {
    const double* mean = preparation_.mean.data();
    const double* factor = preparation_.factor.data();
    for (std::int64_t d = 0; d < features_; ++d) {
      out[d] = static_cast<T>((static_cast<double>(pixels[d]) - mean[d]) * factor[d]);
    }
  } else if constexpr (std::is_same_v<T, float>) {
    const PixelFormula formula = formula_;  // a copy: `out` cannot alias it
    for (std::int64_t d = 0; d < features_; ++d) out[d] = formula(static_cast<float>(pixels[d]));
  } else {
    for (std::int64_t d = 0; d < features_; ++d) out[d] = table_[pixels[d]];
  }
}

template <typename T>
void Shard::copy_row(const Samples& source, std::int64_t row, T* out) const {
  if (source.features.scalar_type() == at::kByte) {
    const auto* pixels = static_cast<const std::uint8_t*>(source.features.const_data_ptr());
    standardise(pixels + row * features_, out);
  } else {
    const auto* numbers = static_cast<const T*>(source.features.const_data_ptr());
    std::copy_n(numbers + row * features_, features_, out);
  }
}

void Shard::gather_train(std::int64_t client, std::span<const std::int64_t> positions,
                         std::int64_t c, const Tensor& features, const Tensor& labels,
                         std::span<const Crop> crops) const {
  check_stack(features, c, static_cast<std::int64_t>(positions.size()));
  check_stack(labels, c, static_cast<std::int64_t>(positions.size()));
  require(features.scalar_type() == scalar_type(dtype_) && features.dim() == 3 &&
              features.size(2) == features_ && features.stride(2) == 1,
          "a batch goes to a stack [C, B, D] of the shard's number type");
  require(labels.dim() == 2 && labels.stride(1) == 1, "labels go to a stack [C, B]");
  require(crops.empty() || (crops.size() == positions.size() && image_.channels > 0 &&
                            train_.features.scalar_type() == at::kByte),
          "every image of a batch in pixels has a crop");
  std::vector<std::uint8_t> cropped(crops.empty() ? 0 : static_cast<std::size_t>(features_));
  const std::int64_t begin = train_begin(client);
  const std::int64_t count = train_count(client);
  const auto* known = train_.labels.const_data_ptr<std::int64_t>() + begin;
  auto* label = labels.data_ptr<std::int64_t>() + c * labels.stride(0);
  with_type(features.scalar_type(), [&]<typename T>() {
    T* row = features.data_ptr<T>() + c * features.stride(0);
    for (std::size_t b = 0; b < positions.size(); ++b) {
      const std::int64_t position = positions[b];
      require(0 <= position && position < count, "a position lies in the client's training list");
      if (crops.empty()) {
        copy_row(train_, begin + position, row);
      } else {
        const auto* pixels = train_.features.const_data_ptr<std::uint8_t>();
        crop_image(pixels + (begin + position) * features_, image_, crops[b], cropped.data());
        standardise(cropped.data(), row);
      }
      *label++ = known[position];
      row += features.stride(1);
    }
  });
}

void Shard::gather_test(std::int64_t row_begin, std::int64_t row_end, const Tensor& out) const {
  require(0 <= row_begin && row_begin <= row_end && row_end <= test_rows(),
          "a shard is asked for test rows it has");
  require(out.is_cpu() && out.is_contiguous() && out.scalar_type() == scalar_type(dtype_) &&
              out.numel() == (row_end - row_begin) * features_,
          "gathered rows go to a contiguous host tensor [B, D] of the shard's number type");
  with_type(out.scalar_type(), [&]<typename T>() {
    T* to = out.data_ptr<T>();
    for (std::int64_t row = row_begin; row < row_end; ++row, to += features_) {
      copy_row(test_, row, to);
    }
  });
}

}  // namespace fedhpc
