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

}  // namespace

DeviceSamples::DeviceSamples(const Samples& samples, const Preparation& preparation,
                             const std::array<double, 256>& table, const ImageShape& image,
                             at::Device device)
    : features_(samples.features.to(device)),
      labels_(samples.labels.to(device)),
      table_(constants({table.begin(), table.end()}, device)),
      mean_(constants(preparation.mean, device)),
      factor_(constants(preparation.factor, device)),
      image_(preparation.augment == Augment::CropFlip ? image : ImageShape{}) {}

void DeviceSamples::gather(const Tensor& picks, const Tensor& step, const Tensor& features,
                           const Tensor& labels) const {
  static_assert(sizeof(DevicePick) == 3 * sizeof(std::int64_t));
  require(picks.dim() == 4 && picks.size(3) == 3 && picks.is_contiguous() &&
              picks.size(1) >= features.size(0) && picks.size(2) >= features.size(1),
          "a pick for every sample of the batches");
  require(features.size(2) == features_.size(1) && features.stride(2) == 1 && labels.stride(1) == 1,
          "batches go to stacks [C, B, D] and [C, B]");
  device_kernels<DataKernels>().gather(
      {.type = real_of(features),
       .pixels = features_.scalar_type() == at::kByte,
       .source = features_.const_data_ptr(),
       .source_labels = labels_.const_data_ptr<std::int64_t>(),
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
       .labels = labels.data_ptr<std::int64_t>(),
       .label_stride = labels.stride(0)});
}

void DeviceSamples::gather(std::int64_t first, const Tensor& features, const Tensor& labels) const {
  if (features.size(1) == 0) return;
  device_kernels<DataKernels>().gather({.type = real_of(features),
                                        .pixels = features_.scalar_type() == at::kByte,
                                        .source = features_.const_data_ptr(),
                                        .source_labels = labels_.const_data_ptr<std::int64_t>(),
                                        .first = first,
                                        .table = data_of(table_),
                                        .mean = data_of(mean_),
                                        .factor = data_of(factor_),
                                        .inputs = device_stack(features),
                                        .labels = labels.data_ptr<std::int64_t>()});
}

std::int64_t DeviceSamples::bytes() const {
  return static_cast<std::int64_t>(features_.nbytes() + labels_.nbytes());
}

}  // namespace fedhpc
