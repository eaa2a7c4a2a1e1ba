#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include "fedhpc/data/shard.hpp"
#include "fedhpc/factorisations/update_map.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "timing.hpp"

// Whole-run driver: what composing the weights from an update's factors and taking the gradient
// back cost, against the local step of the same network in full (cnn4, 28 x 28 images, batches of
// 64) and in the same run. Usage: fedmud_ratios [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr std::int64_t kClients = 4;
constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kBatches = 2;
constexpr std::int64_t kTimes = 20;  // composed and taken back in a repetition

/// The clients' samples and the network.
struct Setting {
  Setting() {
    DataOptions data;
    data.name = "glyphs";
    data.clients = kClients;
    data.samples_per_client = kBatch * kBatches * 5 / 4;
    data.train_fraction = 0.8;
    const auto dataset = open_dataset(data);
    const Partition partition = make_partition(data, *dataset);
    shard = std::make_unique<Shard>(*dataset, partition, ids(), data.standardize, DType::Float32);
    ModelOptions options;
    options.name = "cnn4";
    model = make_model(options, dataset->shape(), dataset->classes());
    initial = {initial_row(*model->layout(), /*seed=*/1, at::kFloat), model->layout()};
  }

  static std::vector<std::int64_t> ids() {
    std::vector<std::int64_t> clients(kClients);
    std::iota(clients.begin(), clients.end(), 0);
    return clients;
  }

  std::unique_ptr<Shard> shard;
  std::unique_ptr<Model> model;
  Rows initial;
};

/// The network as an update of 1/32 of its size.
class Factored {
 public:
  Factored(const Setting& setting, const std::string& factorisation)
      : map_(options(factorisation), setting.model->layout()), update_(map_, at::kFloat) {
    constexpr FactorDraw kDraw{.range = 0.5, .zero = true};
    update_.frozen() = setting.initial;
    map_.draw_constants(/*seed=*/1, kDraw, at::kFloat);
    start_ = map_.initial(setting.initial, /*seed=*/1, kDraw);
  }

  UpdateMap& map() { return update_; }
  const Rows& start() const { return start_; }

 private:
  static FactorisationOptions options(const std::string& factorisation) {
    FactorisationOptions options;
    options.name = factorisation;
    options.compression = 32;
    options.scope = CompressionScope::Model;
    options.exclude = {"first", "last"};
    options.view = ConvView::Raw;
    return options;
  }

  FactorMap map_;
  UpdateMap update_;
  Rows start_;
};

/// Weights composed and gradients taken back, one client at a time.
class Mapping {
 public:
  Mapping(const Setting& setting, Factored& factored)
      : factored_(factored),
        u_(factored.start().clone()),
        w_(setting.initial.clone()),
        dw_{at::randn({1, setting.initial.layout->size()}), setting.initial.layout},
        du_(factored.start().clone()) {}

  double operator()() {
    for (std::int64_t i = 0; i < kTimes; ++i) {
      factored_.map().expand_(u_, w_);
      factored_.map().pullback_(u_, dw_, du_);
    }
    return w_.values[0][0].item<double>() + du_.values[0][0].item<double>();
  }

 private:
  Factored& factored_;
  Rows u_;
  Rows w_;
  Rows dw_;
  Rows du_;
};

/// Local steps of every client, one after the other: of weights in full, or through a map.
class Training {
 public:
  Training(const Setting& setting, Factored* factored)
      : options_{.batch_size = kBatch, .local_epochs = 1, .lr = 0.01},
        trainer_(*setting.model, *setting.shard, options_, Context{.seed = 1}),
        start_(factored != nullptr ? factored->start() : setting.initial),
        map_(factored != nullptr ? &factored->map() : nullptr) {}

  double operator()() {
    ++round_;
    double loss = 0;
    for (std::int64_t client = 0; client < kClients; ++client) {
      Rows row = start_.clone();
      loss += trainer_.train_(row, std::span(&client, 1), round_, {.map = map_}).front().loss;
    }
    return loss;
  }

 private:
  TrainOptions options_;
  LocalTrainer trainer_;
  Rows start_;
  RowMap* map_;
  std::int64_t round_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  at::set_num_threads(1);
  const Setting setting;
  std::printf("cnn4, batch %lld, an update of 1/32, times per step [us]\n",
              static_cast<long long>(kBatch));
  std::printf("%-14s %10s %14s %12s %10s %10s\n", "", "full step", "factored step", "expand+pull",
              "/ full", "step/full");
  for (const char* name :
       {"low_rank", "low_rank_f", "low_rank_aad", "kronecker", "kronecker_f", "kronecker_aad"}) {
    Factored factored(setting, name);
    Training full(setting, nullptr);
    Training through(setting, &factored);
    Mapping mapping(setting, factored);
    Series of_full;
    Series of_through;
    Series of_mapping;
    for (int r = -1; r < repetitions; ++r) {
      of_full.values.push_back(microseconds_per_step(full, kClients * kBatches));
      of_through.values.push_back(microseconds_per_step(through, kClients * kBatches));
      of_mapping.values.push_back(microseconds_per_step(mapping, kTimes));
      if (r >= 0) continue;
      for (Series* series : {&of_full, &of_through, &of_mapping}) series->values.clear();
    }
    std::printf("%-14s %10.0f %14.0f %12.0f %10.3f %10.3f\n", name, of_full.median_of(),
                of_through.median_of(), of_mapping.median_of(), of_mapping.over(of_full),
                of_through.over(of_full));
  }
}
