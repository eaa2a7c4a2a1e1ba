#include "fedhpc/data/preparation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fedhpc {

namespace {

/// Mean and standard deviation of pixels in [0, 1], one for all channels or one each.
struct Constants {
  std::string dataset;
  std::vector<double> mean;
  std::vector<double> deviation;
};

/// As in the public code of FedMUD (Fashion-MNIST, SVHN, CIFAR-10 with ImageNet's, CIFAR-100).
const std::vector<Constants>& constants_of(Standardize rule) {
  static const std::vector<Constants> scalar = {{"fmnist", {.2860}, {.3530}},
                                                {"svhn", {.4496}, {.1995}}};
  static const std::vector<Constants> channel = {
      {"cifar10", {.485, .456, .406}, {.229, .224, .225}},
      {"cifar100", {.5071, .4865, .4409}, {.2673, .2564, .2762}}};
  return rule == Standardize::Scalar ? scalar : channel;
}

void use_constants(const DataOptions& options, const Dataset& dataset, Preparation& preparation) {
  const std::vector<Constants>& known = constants_of(options.standardize);
  const auto found = std::find_if(known.begin(), known.end(), [&](const Constants& constants) {
    return constants.dataset == options.name;
  });
  if (found == known.end()) {
    std::vector<std::string> names;
    for (const Constants& constants : known) names.push_back(constants.dataset);
    const bool scalar = options.standardize == Standardize::Scalar;
    throw ConfigError(concat("data.standardize = ", scalar ? "scalar" : "channel",
                             " has no constants for data.name = ", options.name,
                             "; it has them for ", join(names), ". Use pixel, unit or half"));
  }
  const auto parts = static_cast<std::int64_t>(found->mean.size());
  const std::int64_t columns = dataset.features();
  require(columns % parts == 0, "a data set has as many channels as constants");
  for (std::int64_t d = 0; d < columns; ++d) {
    const auto part = static_cast<std::size_t>(d / (columns / parts));
    preparation.mean.push_back(255 * found->mean[part]);
    preparation.factor.push_back(1 / (255 * found->deviation[part]));
  }
}

/// Calls `visit` with every sample's features in order of id, a part of the data set at a time.
template <typename Visit>
void each_sample(const Dataset& dataset, Visit&& visit) {
  constexpr std::int64_t kPart = 2048;
  const std::int64_t total = dataset.num_train() + dataset.num_test();
  const std::int64_t columns = dataset.features();
  for (std::int64_t first = 0; first < total; first += kPart) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kPart, total - first)));
    std::iota(ids.begin(), ids.end(), first);
    const Tensor features = dataset.read(ids).features;
    for (std::int64_t i = 0; i < features.size(0); ++i) {
      if (features.scalar_type() == at::kByte) {
        visit(features.const_data_ptr<std::uint8_t>() + i * columns);
      } else {
        visit(features.const_data_ptr<double>() + i * columns);
      }
    }
  }
}

void use_statistics(const Dataset& dataset, Preparation& preparation) {
  const auto columns = static_cast<std::size_t>(dataset.features());
  const auto total = static_cast<double>(dataset.num_train() + dataset.num_test());
  require(total > 0, "a data set has samples");
  std::vector<double>& mean = preparation.mean;
  std::vector<double>& factor = preparation.factor;
  mean.assign(columns, 0);
  factor.assign(columns, 0);
  each_sample(dataset, [&](const auto* x) {
    for (std::size_t d = 0; d < columns; ++d) mean[d] += static_cast<double>(x[d]);
  });
  for (double& m : mean) m /= total;
  each_sample(dataset, [&](const auto* x) {
    for (std::size_t d = 0; d < columns; ++d) {
      const double difference = static_cast<double>(x[d]) - mean[d];
      factor[d] += difference * difference;
    }
  });
  for (std::size_t d = 0; d < columns; ++d) {
    if (!std::isfinite(factor[d])) {
      throw DataError(concat("data.standardize = pixel: value ", d,
                             " of the samples is too large for its square; scale it"));
    }
    factor[d] = 1 / (std::sqrt(factor[d] / total) + .001);
  }
}

void check_images(const DataOptions& options, const Dataset& dataset) {
  const std::vector<std::int64_t> first = {0};
  if (dataset.shape().size() == 3 && dataset.read(first).features.scalar_type() == at::kByte) {
    return;
  }
  throw ConfigError(concat("data.augment = crop_flip is for images in pixels, and data.name = ",
                           options.name, " has other samples; set data.augment = none"));
}

}  // namespace

Preparation make_preparation(const DataOptions& options, const Dataset& dataset) {
  Preparation preparation(options.standardize);
  preparation.augment = options.augment;
  if (options.augment != Augment::None) check_images(options, dataset);
  switch (options.standardize) {
    case Standardize::None:
    case Standardize::Unit:
    case Standardize::Half:
      break;
    case Standardize::Scalar:
    case Standardize::Channel:
      use_constants(options, dataset, preparation);
      break;
    case Standardize::Pixel:
      use_statistics(dataset, preparation);
      break;
  }
  return preparation;
}

}  // namespace fedhpc
