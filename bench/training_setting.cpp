#include "training_setting.hpp"

#include <functional>
#include <numeric>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>

namespace fedhpc::bench {

namespace {

constexpr std::int64_t kClasses = 10;

/// Pixels and labels drawn uniformly: what is measured does not depend on them.
class RandomImages : public Dataset {
 public:
  RandomImages(std::vector<std::int64_t> shape, std::int64_t samples) : shape_(std::move(shape)) {
    const std::int64_t features =
        std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
    const at::Generator generator = at::detail::createCPUGenerator(/*seed=*/1);
    pixels_ = at::randint(256, {samples, features}, generator, at::kByte);
    labels_ = at::randint(kClasses, {samples}, generator, at::kLong);
  }

  std::vector<std::int64_t> shape() const override { return shape_; }
  std::int64_t classes() const override { return kClasses; }
  std::int64_t num_train() const override { return labels_.size(0); }
  std::int64_t num_test() const override { return 0; }
  std::vector<std::int64_t> labels() const override {
    const auto* first = labels_.const_data_ptr<std::int64_t>();
    return {first, first + labels_.numel()};
  }
  Samples read(std::span<const std::int64_t> ids) const override {
    std::vector<std::int64_t> copy(ids.begin(), ids.end());
    const Tensor rows =
        at::from_blob(copy.data(), {static_cast<std::int64_t>(copy.size())}, at::kLong);
    return {pixels_.index_select(0, rows), labels_.index_select(0, rows)};
  }

 private:
  std::vector<std::int64_t> shape_;
  Tensor pixels_;  // [S, D] uint8
  Tensor labels_;  // [S]
};

std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

std::vector<TrainingCase> training_cases() {
  const std::vector<std::int64_t> colour{3, 32, 32};
  return {{"dnn", {1, 28, 28}, 20, 10, 20},
          {"cnn4", colour, 64, 2, 8},
          {"resnet9", colour, 64, 2, 4},
          {"resnet18_gn", colour, 64, 2, 4}};
}

TrainingSetting::TrainingSetting(TrainingCase which, std::int64_t clients, std::int64_t batch,
                                 at::Device device)
    : which_(std::move(which)), device_(device) {
  if (batch > 0) which_.batch = batch;
  dataset_ = std::make_unique<RandomImages>(which_.shape, clients * samples());
  for (std::int64_t client = 0; client < clients; ++client) {
    partition_.train.append(ids_of(client));
    partition_.test.append({});
  }
  ModelOptions options;
  options.name = which_.name == "resnet18_gn" ? "resnet18" : which_.name;
  if (which_.name == "resnet18_gn") options.norm = NormChoice::Group;
  options.hidden = {100};
  model_ = make_model(options, which_.shape, kClasses);
  shard_ = std::make_unique<Shard>(*dataset_, partition_, numbers_from(0, clients),
                                   Standardize::Unit, DType::Float32);
  shard_->use_device_(device_);
}

std::vector<std::int64_t> TrainingSetting::ids_of(std::int64_t client) const {
  return numbers_from(client * samples(), samples());
}

Tensor TrainingSetting::features_of(std::int64_t client) const {
  std::vector<std::int64_t> shape{samples()};
  shape.insert(shape.end(), which_.shape.begin(), which_.shape.end());
  return dataset_->read(ids_of(client)).features.to(at::kFloat).div_(255).view(shape).to(device_);
}

Tensor TrainingSetting::labels_of(std::int64_t client) const {
  return dataset_->read(ids_of(client)).labels.to(device_);
}

double TrainingSetting::flops_of_step() const {
  return 3 * model_->forward_flops() * static_cast<double>(batch());
}

}  // namespace fedhpc::bench
