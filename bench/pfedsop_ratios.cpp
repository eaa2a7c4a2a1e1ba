#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn_like.h>

#include "fedhpc/algorithms/pfedsop.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "timing.hpp"

// Whole-run driver: Algorithm 1 of pFedSOP against the local training of the same round (one epoch
// in batches of 50 of 560 samples: the paper's 100 clients and 80 % of 70,000) and against bare
// copies of the rows, taking turns in one process. The rows of the clients do not fit into a
// cache together, as in a run. Usage: pfedsop_ratios [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr std::int64_t kClients = 100;
constexpr std::int64_t kBatch = 50;
constexpr std::int64_t kSamples = 560;

/// The clients, their models and their last updates.
struct Setting {
  Setting() : store(ids()) {
    DataOptions data;
    data.name = "glyphs";
    data.clients = kClients;
    data.samples_per_client = kSamples * 5 / 4;
    data.train_fraction = 0.8;
    const auto dataset = open_dataset(data);
    const Partition partition = make_partition(data, *dataset);
    shard = std::make_unique<Shard>(*dataset, partition, ids(), data.standardize, DType::Float32);
    ModelOptions options;
    options.hidden = {100};
    model = make_model(options, dataset->shape(), dataset->classes());
    initial = {initial_row(*model->layout(), /*seed=*/1, at::kFloat), model->layout()};
    part = RowPart(model->layout(), {.with = Tag::Trainable});
    models = &store.rows("model", initial);
    updates = &store.rows("update", part.of(initial));
    global = {at::randn_like(initial.values), part.layout()};
    for (const std::int64_t client : ids()) {
      models->write(std::span(&client, 1), initial);
      updates->write(std::span(&client, 1), {at::randn_like(initial.values), part.layout()});
    }
  }

  static std::vector<std::int64_t> ids() {
    std::vector<std::int64_t> clients(kClients);
    std::iota(clients.begin(), clients.end(), 0);
    return clients;
  }

  std::unique_ptr<Shard> shard;
  std::unique_ptr<Model> model;
  Rows initial;
  RowPart part;
  ClientStore store;
  StoredRows* models = nullptr;
  StoredRows* updates = nullptr;
  Rows global;  // [1, d]
};

/// x_it of every client, one after the other.
class AlgorithmOne {
 public:
  explicit AlgorithmOne(const Setting& setting)
      : setting_(setting), model_(setting.initial.clone()) {}

  double operator()() {
    const double square = inner_products(setting_.global, setting_.global).aa.values().front();
    double lengths = 0;
    for (std::int64_t client = 0; client < kClients; ++client) {
      lengths += algorithm_
                     .step(setting_.part, model_, setting_.models->view(client),
                           setting_.updates->view(client), setting_.global, square)
                     .front()
                     .length;
    }
    return lengths;
  }

 private:
  const Setting& setting_;
  Personalisation algorithm_;
  Rows model_;
};

/// The local training of every client, one after the other.
class LocalTraining {
 public:
  explicit LocalTraining(const Setting& setting)
      : options_{.batch_size = kBatch, .local_epochs = 1, .lr = 0.01},
        trainer_(*setting.model, *setting.shard, options_, Context{.seed = 1}),
        start_(setting.initial) {}

  double operator()() {
    ++round_;
    double loss = 0;
    for (std::int64_t client = 0; client < kClients; ++client) {
      Rows row = start_.clone();
      loss += trainer_.train_(row, std::span(&client, 1), round_, LocalWork{}).front().loss;
    }
    return loss;
  }

 private:
  TrainOptions options_;
  LocalTrainer trainer_;
  Rows start_;
  std::int64_t round_ = 0;
};

/// Three rows read and two written for every client, by the library's copy: each of its two rows
/// out, and one of them once more.
class Copies {
 public:
  explicit Copies(const Setting& setting)
      : setting_(setting), first_(setting.initial.clone()), second_(setting.initial.clone()) {}

  double operator()() {
    const std::size_t bytes = setting_.initial.values.nbytes();
    double sum = 0;
    for (std::int64_t client = 0; client < kClients; ++client) {
      const Rows update = setting_.updates->view(client);
      const Rows model = setting_.models->view(client);
      std::memcpy(first_.values.data_ptr(), update.values.const_data_ptr(), bytes);
      std::memcpy(second_.values.data_ptr(), model.values.const_data_ptr(), bytes);
      sum += first_.values.sum().item<double>();
    }
    return sum;
  }

 private:
  const Setting& setting_;
  Rows first_;
  Rows second_;
};

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  at::set_num_threads(1);
  const Setting setting;
  AlgorithmOne algorithm(setting);
  LocalTraining training(setting);
  Copies copies(setting);
  Series of_algorithm;
  Series of_training;
  Series of_copies;
  for (int r = -1; r < repetitions; ++r) {
    of_algorithm.values.push_back(microseconds_per_step(algorithm, kClients));
    of_training.values.push_back(microseconds_per_step(training, kClients));
    of_copies.values.push_back(microseconds_per_step(copies, kClients));
    if (r >= 0) continue;
    for (Series* series : {&of_algorithm, &of_training, &of_copies}) {
      series->values.clear();  // first calls allocate
    }
  }
  std::printf(
      "per client, d = %lld: Algorithm 1 %.1f us, training %.1f us, 3 reads and 2 writes %.1f us\n",
      static_cast<long long>(setting.part.layout()->size()), of_algorithm.median_of(),
      of_training.median_of(), of_copies.median_of());
  Series round;
  for (std::size_t i = 0; i < of_training.values.size(); ++i) {
    round.values.push_back(of_training.values[i] + of_algorithm.values[i]);
  }
  std::printf("Algorithm 1 / (Algorithm 1 + training) %.3f, / copies %.2f\n",
              of_algorithm.over(round), of_algorithm.over(of_copies));
  return 0;
}
