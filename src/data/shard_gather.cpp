// A shard's samples on their way into a batch: picked, cropped, standardised.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "fedhpc/core/device.hpp"
#include "fedhpc/data/shard.hpp"

namespace fedhpc {

namespace {

void check_stack(const Tensor& stack, std::int64_t c, std::int64_t batch_size) {
  require(stack.is_cpu() && stack.dim() >= 2 && 0 <= c && c < stack.size(0) &&
              batch_size <= stack.size(1),
          "a batch fits its row of a host stack [C, B, ...]");
}

}  // namespace

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

void Shard::check_targets(const Tensor& targets) const {
  const bool stacked = targets.dim() == 2 ? targets_.count == 1
                                          : targets.dim() == 3 && targets.size(2) == targets_.count;
  require(stacked && targets.stride(1) == targets_.count && targets.scalar_type() == target_type(),
          "targets go to a stack [C, B, T], or [C, B] of one each");
}

void Shard::gather_train(std::int64_t client, std::span<const std::int64_t> positions,
                         std::int64_t c, const Tensor& features, const Tensor& targets,
                         std::span<const Crop> crops) const {
  if (const Shard* other = guest(client)) {
    other->gather_train(client, positions, c, features, targets, crops);
    return;
  }
  check_stack(features, c, static_cast<std::int64_t>(positions.size()));
  check_stack(targets, c, static_cast<std::int64_t>(positions.size()));
  require(features.scalar_type() == scalar_type(dtype_) && features.dim() == 3 &&
              features.size(2) == features_ && features.stride(2) == 1,
          "a batch goes to a stack [C, B, D] of the shard's number type");
  check_targets(targets);
  require(!on_demand(), "a shard on demand has training samples in hand only");
  require(crops.empty() || (crops.size() == positions.size() && image_.channels > 0 &&
                            train_.features.scalar_type() == at::kByte),
          "every image of a batch in pixels has a crop");
  std::vector<std::uint8_t> cropped(crops.empty() ? 0 : static_cast<std::size_t>(features_));
  const std::int64_t begin = train_begin(client);
  const std::int64_t count = train_count(client);
  // Targets are copied as they are, whatever their type.
  const Tensor& told = train_.told();
  const std::int64_t bytes = told.itemsize() * targets_.count;
  const auto* known = static_cast<const char*>(told.const_data_ptr()) + begin * bytes;
  auto* target = static_cast<char*>(targets.data_ptr()) + c * targets.stride(0) * told.itemsize();
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
      std::memcpy(target, known + position * bytes, static_cast<std::size_t>(bytes));
      target += bytes;
      row += features.stride(1);
    }
  });
}

void Shard::gather_planned(const Tensor& picks, const Tensor& step, const Tensor& features,
                           const Tensor& targets) const {
  require(train_on_device_ != nullptr, "a shard whose samples are on the device");
  check_targets(targets);
  train_on_device_->gather(picks, step, features, targets);
}

void Shard::gather_test(std::int64_t row_begin, std::int64_t row_end, const Tensor& features,
                        const Tensor& targets) const {
  const std::int64_t rows = row_end - row_begin;
  require(0 <= row_begin && row_begin <= row_end && row_end <= test_rows(),
          "a shard is asked for test rows it has");
  require(features.is_contiguous() && features.scalar_type() == scalar_type(dtype_) &&
              features.numel() == rows * features_,
          "gathered rows go to a contiguous tensor [B, D] of the shard's number type");
  require(targets.is_contiguous() && targets.numel() >= rows * targets_.count &&
              targets.scalar_type() == target_type() && targets.device() == features.device(),
          "gathered targets go to a contiguous tensor [B, T] beside the rows");
  const Samples made = on_demand() ? load(*source_, test_ids(row_begin, row_end)) : Samples{};
  if (fedhpc::on_device(features)) {
    const auto samples = on_demand() ? on_device(made) : test_on_device_;
    samples->gather(on_demand() ? 0 : row_begin, features.view({1, rows, features_}), targets);
    return;
  }
  const Samples& from = on_demand() ? made : test_;
  const std::int64_t first = on_demand() ? 0 : row_begin;
  const Tensor& told = from.told();
  const std::int64_t bytes = told.itemsize() * targets_.count;
  std::memcpy(targets.data_ptr(), static_cast<const char*>(told.const_data_ptr()) + first * bytes,
              static_cast<std::size_t>(rows * bytes));
  with_type(features.scalar_type(), [&]<typename T>() {
    T* to = features.data_ptr<T>();
    for (std::int64_t row = first; row < first + rows; ++row, to += features_) {
      copy_row(from, row, to);
    }
  });
}

}  // namespace fedhpc
