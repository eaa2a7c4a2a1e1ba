#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "step_variants.hpp"

namespace fedhpc::bench {

struct AutogradLoop::Client {
  torch::nn::Sequential model;
  torch::optim::SGD optimizer;
  Tensor features;  // [S, D] float32
  Tensor labels;    // [S]
};

namespace {

torch::nn::Sequential make_module(const StepSetting& setting) {
  torch::nn::Sequential model;
  std::int64_t in = setting.model->features();
  for (const std::int64_t width : setting.which.hidden) {
    model->push_back(torch::nn::Linear(in, width));
    model->push_back(torch::nn::ReLU());
    in = width;
  }
  model->push_back(torch::nn::Linear(in, setting.model->classes()));
  return model;
}

}  // namespace

AutogradLoop::AutogradLoop(const StepSetting& setting) {
  const std::int64_t samples = kBatch * kSteps;
  std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) all[static_cast<std::size_t>(i)] = i;
  for (std::int64_t client = 0; client < kClients; ++client) {
    Tensor features = at::empty({1, samples, setting.model->features()});
    Tensor labels = at::empty({1, samples}, at::kLong);
    setting.shard->gather_train(client, all, 0, features, labels);
    torch::nn::Sequential model = make_module(setting);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
    clients_.push_back(std::make_unique<Client>(
        Client{model, std::move(optimizer), features.squeeze(0), labels.squeeze(0)}));
  }
}

AutogradLoop::~AutogradLoop() = default;

double AutogradLoop::operator()() {
  double total = 0;
  for (const auto& client : clients_) {
    const Tensor order = at::randperm(kBatch * kSteps, at::kLong);
    for (std::int64_t s = 0; s < kSteps; ++s) {
      const Tensor batch = order.narrow(0, s * kBatch, kBatch);
      client->optimizer.zero_grad();
      const Tensor loss = torch::nn::functional::cross_entropy(
          client->model->forward(client->features.index_select(0, batch)),
          client->labels.index_select(0, batch));
      loss.backward();
      client->optimizer.step();
      total += loss.item<double>() * static_cast<double>(kBatch);
    }
  }
  return total;
}

}  // namespace fedhpc::bench
