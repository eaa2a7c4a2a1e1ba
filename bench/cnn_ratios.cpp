#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>

#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "timing.hpp"

// Whole-run driver: a local step of CNN4 on 28x28 images (batch norm, ReLU, pooling, loss, update,
// batches gathered) against its convolutions and products alone by ATen's kernels, taking turns in
// one process. Usage: cnn_ratios [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr std::int64_t kClients = 10;
constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kSteps = 2;  // one epoch
constexpr std::int64_t kStepsPerPhase = kClients * kSteps;

/// The project's own path on blocks of clients.
class ProjectSteps {
 public:
  explicit ProjectSteps(std::int64_t block) : block_(block), clients_(kClients) {
    DataOptions data;
    data.name = "glyphs";
    data.clients = kClients;
    data.samples_per_client = kBatch * kSteps * 5 / 4;
    data.train_fraction = 0.8;
    const auto dataset = open_dataset(data);
    std::iota(clients_.begin(), clients_.end(), 0);
    shard_ = std::make_unique<Shard>(*dataset, make_partition(data, *dataset), clients_,
                                     data.standardize, DType::Float32);
    ModelOptions options;
    options.name = "cnn4";
    model_ = make_model(options, dataset->shape(), dataset->classes());
    options_.batch_size = kBatch;
    options_.lr = 0.01;
    trainer_ = std::make_unique<LocalTrainer>(*model_, *shard_, options_, Context{.seed = 1});
    const Rows initial{initial_row(*model_->layout(), /*seed=*/1, at::kFloat), model_->layout()};
    for (std::int64_t first = 0; first < kClients; first += block) {
      blocks_.push_back(initial.replicate(block));
    }
    for (const std::int64_t client : clients_) {
      require(trainer_->steps(client, 1) == kSteps, "an epoch has whole batches only");
    }
  }

  double operator()() {
    ++round_;
    double loss = 0;
    const auto block = static_cast<std::size_t>(block_);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const auto clients = std::span<const std::int64_t>(clients_).subspan(b * block, block);
      for (const TrainStatistics& of_client :
           trainer_->train_(blocks_[b], clients, round_, LocalWork{})) {
        loss += of_client.loss;
      }
    }
    return loss;
  }

 private:
  std::int64_t block_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Model> model_;
  TrainOptions options_;
  std::unique_ptr<LocalTrainer> trainer_;
  std::vector<std::int64_t> clients_;
  std::vector<Rows> blocks_;  // each [block, P]
  std::int64_t round_ = 0;
};

/// Forward, input gradient (but of the first layer) and weight gradient of the four convolutions
/// and the linear layer: nothing else, on tensors of its own for each client.
class ConvolutionsAlone {
 public:
  ConvolutionsAlone() {
    constexpr std::array<std::array<std::int64_t, 3>, 4> kShapes{
        {{1, 32, 28}, {32, 64, 14}, {64, 128, 7}, {128, 256, 3}}};
    for (std::int64_t client = 0; client < kClients; ++client) {
      for (const auto& [in, out, side] : kShapes) {
        layers_.push_back({at::randn({kBatch, in, side, side}), at::randn({out, in, 3, 3}),
                           at::randn({kBatch, out, side, side})});
      }
      linear_.push_back({at::randn({kBatch, 256}), at::randn({10, 256}), at::randn({kBatch, 10})});
    }
  }

  double operator()() {
    const std::array<std::int64_t, 2> one{1, 1};
    const std::array<std::int64_t, 2> zero{0, 0};
    double sum = 0;
    for (std::int64_t s = 0; s < kSteps; ++s) {
      for (const Tensors& l : layers_) at::convolution(l.x, l.w, {}, one, one, one, false, zero, 1);
      for (const Tensors& l : linear_) {
        at::matmul(l.x, l.w.t());
        at::matmul(l.dy, l.w);
        sum += at::matmul(l.dy.t(), l.x).const_data_ptr<float>()[0];
      }
      for (const Tensors& l : layers_) {
        at::convolution_backward(l.dy, l.x, l.w, std::nullopt, one, one, one, false, zero, 1,
                                 {l.x.size(1) > 1, true, false});
      }
    }
    return sum;
  }

 private:
  struct Tensors {
    Tensor x;
    Tensor w;
    Tensor dy;
  };
  std::vector<Tensors> layers_;
  std::vector<Tensors> linear_;
};

void compare(std::int64_t block, int repetitions) {
  ProjectSteps project(block);
  ConvolutionsAlone convolutions;
  project();  // first calls allocate
  convolutions();
  Series step;
  Series bare;
  for (int r = 0; r < repetitions; ++r) {
    step.values.push_back(microseconds_per_step(project, kStepsPerPhase));
    bare.values.push_back(microseconds_per_step(convolutions, kStepsPerPhase));
  }
  std::printf("%5lld %10.0f %10.0f %8.2f\n", static_cast<long long>(block), step.median_of(),
              bare.median_of(), step.over(bare));
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  at::set_num_threads(1);
  std::printf("%5s %10s %10s %8s\n", "block", "step us", "bare us", "ratio");
  for (const std::int64_t block : {std::int64_t{1}, kClients}) compare(block, repetitions);
  return 0;
}
