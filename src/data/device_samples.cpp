#include "fedhpc/data/device_samples.hpp"

#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/data/device_kernels.hpp"

namespace fedhpc {

namespace {

Tensor constants(const std::vector<double>& values, at::Device device) {
  return values.empty() ? Tensor() : at::tensor(values, at::kDouble).to(device);
}

const double* data_of(const Tensor& constants) {
  return constants.defined() ? constants.const_data_ptr<double>() : nullptr;
}

/// Words of 4 bytes, which are what targets of every type are copied by.
std::int64_t words_of(const Tensor& values) {
  return static_cast<std::int64_t>(values.itemsize()) / 4;
}

}  // namespace

std::int64_t DeviceSamples::target_words() const { return targets_.stride(0) * words_of(targets_); }

DeviceSamples::DeviceSamples(const Samples& samples, const Preparation& preparation,
                             const std::array<double, 256>& table, const ImageShape& image,
                             at::Device device)
    : features_(samples.features.to(device)),
      targets_(samples.told().to(device)),
      table_(constants({table.begin(), table.end()}, device)),
      mean_(constants(preparation.mean, device)),
      factor_(constants(preparation.factor, device)),
      image_(preparation.augment == Augment::CropFlip ? image : ImageShape{}) {}

void DeviceSamples::gather(const Tensor& picks, const Tensor& step, const Tensor& features,
                           const Tensor& targets) const {
  static_assert(sizeof(DevicePick) == 3 * sizeof(std::int64_t));
  require(picks.dim() == 4 && picks.size(3) == 3 && picks.is_contiguous() &&
              picks.size(1) >= features.size(0) && picks.size(2) >= features.size(1),
          "a pick for every sample of the batches");
  require(features.size(2) == features_.size(1) && features.stride(2) == 1 &&
              targets.stride(1) == targets_.stride(0),
          "batches go to stacks [C, B, D] and [C, B, T]");
  device_kernels<DataKernels>().gather(
      {.type = real_of(features),
       .pixels = features_.scalar_type() == at::kByte,
       .source = features_.const_data_ptr(),
       .source_targets = targets_.const_data_ptr(),
       .picks = static_cast<const DevicePick*>(picks.const_data_ptr()),
       .pick_clients = picks.size(1),
       .pick_batch = picks.size(2),
       .step = step.const_data_ptr<std::int64_t>(),
       .table = data_of(table_),
       .mean = data_of(mean_),
       .factor = data_of(factor_),
       .channels = image_.channels,
       .height = image_.height,
       .image_width = image_.width,
       .inputs = device_stack(features),
       .targets = targets.data_ptr(),
       .target_words = target_words(),
       .target_stride = targets.stride(0) * words_of(targets_)});
}

void DeviceSamples::gather(std::int64_t first, const Tensor& features,
                           const Tensor& targets) const {
  if (features.size(1) == 0) return;
  device_kernels<DataKernels>().gather({.type = real_of(features),
                                        .pixels = features_.scalar_type() == at::kByte,
                                        .source = features_.const_data_ptr(),
                                        .source_targets = targets_.const_data_ptr(),
                                        .first = first,
                                        .table = data_of(table_),
                                        .mean = data_of(mean_),
                                        .factor = data_of(factor_),
                                        .inputs = device_stack(features),
                                        .targets = targets.data_ptr(),
                                        .target_words = target_words()});
}

std::int64_t DeviceSamples::bytes() const {
  return static_cast<std::int64_t>(features_.nbytes() + targets_.nbytes());
}

}  // namespace fedhpc
