#include "fixtures/device.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/training/evaluator.hpp"
#include "fedhpc/training/local_trainer.hpp"
#include "fedhpc/training/step_taker.hpp"

// Local training and scoring on a device equal those on the host.
namespace fedhpc::testing {
namespace {

/// Six clients of different sizes and a model for them.
struct Problem {
  explicit Problem(const std::string& data_name, const std::string& model_name, DType dtype,
                   Augment augment = Augment::None) {
    data.name = data_name;
    data.clients = 6;
    data.samples_per_client = 14;
    data.partition = "dirichlet";
    data.alpha = 3;
    data.augment = augment;
    dataset = open_dataset(data);
    partition = make_partition(data, *dataset);
    std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5};
    shard =
        std::make_unique<Shard>(*dataset, partition, all, make_preparation(data, *dataset), dtype);
    ModelOptions of_model;
    of_model.name = model_name;
    model = make_model(of_model, dataset->shape(), dataset->classes());
    const Tensor row = initial_row(*model->layout(), 3, scalar_type(dtype));
    start = {row.repeat({6, 1}), model->layout()};
    type = scalar_type(dtype);
    // As in a block: who runs out of steps first comes last.
    std::ranges::stable_sort(clients, std::ranges::greater{},
                             [&](std::int64_t c) { return shard->train_count(c); });
    for (std::int64_t c = 0; c < 6; ++c) start.values[c].mul_(1 + 0.01 * static_cast<double>(c));
  }

  Context context(at::Device device) const { return {.type = type, .device = device, .seed = 7}; }

  DataOptions data;
  std::unique_ptr<Dataset> dataset;
  Partition partition;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<Model> model;
  at::ScalarType type = at::kFloat;
  Rows start;
  std::vector<std::int64_t> clients{5, 3, 0, 1, 2, 4};
};

struct Trained {
  Tensor rows;
  std::vector<TrainStatistics> statistics;
};

Trained train(Problem& problem, const TrainOptions& options, const LocalWork& work,
              at::Device device, std::int64_t rounds = 3) {
  problem.shard->use_device_(device);
  LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(device));
  Rows rows{problem.start.values.to(device, /*non_blocking=*/false, /*copy=*/true),
            problem.start.layout};
  LocalWork there = work;
  if (work.penalty.mu != 0) {
    there.penalty.centre = {work.penalty.centre.values.to(device), work.penalty.centre.layout};
  }
  Trained trained;
  for (std::int64_t round = 1; round <= rounds; ++round) {
    trained.statistics = trainer.train_(rows, problem.clients, round, there);
  }
  EXPECT_EQ(trainer.captured_steps() > 0, !device.is_cpu());
  trained.rows = rows.values.cpu();
  problem.shard->use_device_(at::kCPU);
  return trained;
}

void expect_near(const Trained& actual, const Trained& expected, double bound,
                 const std::string& what) {
  const double length = expected.rows.norm().item<double>();
  EXPECT_LT(actual.rows.sub(expected.rows).norm().item<double>(), bound * length) << what;
  for (std::size_t c = 0; c < expected.statistics.size(); ++c) {
    EXPECT_EQ(actual.statistics[c].samples, expected.statistics[c].samples) << what;
    EXPECT_EQ(actual.statistics[c].gradient_values, expected.statistics[c].gradient_values) << what;
    EXPECT_NEAR(actual.statistics[c].loss, expected.statistics[c].loss,
                1e3 * bound * (1 + expected.statistics[c].loss))
        << what;
  }
}

/// Adam divides gradients that are rounding errors alone by its epsilon, 1e-8, and by no less.
double rounding_of(OptimizerKind kind) { return kind == OptimizerKind::Adam ? 1e-7 : 1e-12; }
/// In float32 such steps are as long as any.
double single_rounding_of(OptimizerKind kind) { return kind == OptimizerKind::Adam ? 1e-2 : 1e-5; }

class TrainingOnADevice : public DeviceTest {
 protected:
  at::Device device() const { return current_cuda_device(); }
};

TEST_F(TrainingOnADevice, EqualsTheHostByEveryRule) {
  for (const DType dtype : {DType::Float64, DType::Float32}) {
    Problem problem("synthetic", "dnn", dtype);
    for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Momentum,
                                     OptimizerKind::Nesterov, OptimizerKind::Adam}) {
      for (const double decay : {0.0, 0.1}) {
        TrainOptions options{.batch_size = 4, .local_epochs = 2, .lr = 0.05, .optimizer = kind};
        options.momentum =
            kind == OptimizerKind::Momentum || kind == OptimizerKind::Nesterov ? 0.9 : 0;
        options.weight_decay = decay;
        const double bound = dtype == DType::Float64 ? rounding_of(kind) : single_rounding_of(kind);
        const std::string what =
            "rule " + std::to_string(static_cast<int>(kind)) + " decay " + std::to_string(decay);
        expect_near(train(problem, options, {}, device()), train(problem, options, {}, at::kCPU),
                    bound, what);
      }
    }
  }
}

TEST_F(TrainingOnADevice, EqualsTheHostWithPenalties) {
  Problem problem("synthetic", "dnn", DType::Float64);
  const Rows centre{problem.start.values.mul(0.5), problem.start.layout};
  for (const double mu : {0.0, 0.4}) {
    for (const double gamma : {0.0, 0.03}) {
      for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Adam}) {
        const TrainOptions options{
            .batch_size = 5, .local_epochs = 2, .lr = 0.02, .optimizer = kind};
        LocalWork work;
        work.penalty = {.mu = mu, .centre = centre, .gamma = gamma, .rho = 0.1};
        expect_near(train(problem, options, work, device()),
                    train(problem, options, work, at::kCPU), rounding_of(kind),
                    "mu " + std::to_string(mu) + " gamma " + std::to_string(gamma));
      }
    }
  }
}

TEST_F(TrainingOnADevice, EqualsTheHostWithShortenedGradients) {
  for (const DType dtype : {DType::Float64, DType::Float32}) {
    Problem problem("synthetic", "dnn", dtype);
    for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Nesterov}) {
      TrainOptions options{.batch_size = 4, .local_epochs = 2, .lr = 0.05, .optimizer = kind};
      options.momentum = kind == OptimizerKind::Nesterov ? 0.9 : 0;
      options.clip_norm = 0.5;
      LocalWork work;
      work.penalty = {.mu = 0.4, .centre = {problem.start.values.mul(0.5), problem.start.layout}};
      const double bound = dtype == DType::Float64 ? 1e-12 : 1e-5;
      const Trained host = train(problem, options, work, at::kCPU);
      expect_near(train(problem, options, work, device()), host, bound, "clipped");
      options.clip_norm = 0;
      EXPECT_GT(train(problem, options, work, at::kCPU).rows.sub(host.rows).norm().item<double>(),
                1e-2);
    }
  }
}

TEST_F(TrainingOnADevice, EqualsTheHostOnImagesCroppedAndFlipped) {
  for (const std::string model : {"mlr", "cnn2"}) {
    Problem problem("glyphs", model, DType::Float64, Augment::CropFlip);
    const TrainOptions options{.batch_size = 4, .local_epochs = 2, .lr = 0.02};
    expect_near(train(problem, options, {}, device(), 2), train(problem, options, {}, at::kCPU, 2),
                1e-11, model);
  }
}

TEST_F(TrainingOnADevice, MovesOnlyTheColumnsItIsToldTo) {
  Problem problem("synthetic", "dnn", DType::Float64);
  const TrainOptions options{.batch_size = 4, .local_epochs = 2, .lr = 0.05};
  for (const Columns& columns : {Columns{.with = Tag::Head}, Columns{.without = Tag::Head}}) {
    LocalWork work;
    work.columns = columns;
    expect_near(train(problem, options, work, device()), train(problem, options, work, at::kCPU),
                1e-12, "columns");
  }
}

TEST_F(TrainingOnADevice, WaitsForLossesWhenTheyAreAskedForAndForThePassBeforeTheLast) {
  if (waits_for_device() < 0) GTEST_SKIP() << "waits are not counted here";
  Problem problem("synthetic", "dnn", DType::Float32);
  problem.shard->use_device_(device());
  for (const std::int64_t steps : {3, 30}) {
    const TrainOptions options{
        .batch_size = 4, .local_steps = steps, .local_epochs = 0, .clip_norm = 0.5};
    LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(device()));
    Rows rows{problem.start.values.to(device()), problem.start.layout};
    const auto waits_of = [](const auto& work) {
      const std::int64_t before = waits_for_device();
      work();
      return waits_for_device() - before;
    };
    trainer.train_(rows, problem.clients, 1, {});  // copies its constants once
    std::vector<TrainStatistics> seen;
    const auto train = [&] { seen = trainer.train_(rows, problem.clients, 2, {}); };
    EXPECT_EQ(waits_of(train), 0) << steps << " steps";
    EXPECT_EQ(waits_of(train), 1) << "for the first pass";
    double sum = 0;
    const auto ask = [&] {
      for (const TrainStatistics& of_client : seen) sum += of_client.loss;
    };
    EXPECT_EQ(waits_of(ask), 1);
    EXPECT_EQ(waits_of(ask), 0);
    EXPECT_GT(sum, 0);
  }
}

TEST_F(TrainingOnADevice, RowsAndWhatIsKeptBesideThemBeginAtWholeLines) {
  Problem problem("synthetic", "dnn", DType::Float32);
  ASSERT_NE(problem.start.layout->size() % 32, 0) << "rows of this length would lie so anyway";
  problem.shard->use_device_(device());
  const Rows given{problem.start.values.to(device()), problem.start.layout};
  StepTaker taker(device());
  const Rows held = taker.held(given);
  EXPECT_TRUE(held.values.cpu().equal(given.values.cpu()));
  const TrainOptions options{.batch_size = 4, .local_epochs = 1};
  LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(device()));
  Tensor gradients;
  trainer.each_step(problem.clients, 1, 0,
                    [&](LocalStep& step) { gradients = step.gradient(held); });
  for (const Tensor& rows : {held.values, gradients}) {
    EXPECT_EQ(rows.stride(0) % 32, 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.const_data_ptr()) % 128, 0);
  }
  problem.shard->use_device_(at::kCPU);
}

TEST_F(TrainingOnADevice, CapturesStepsThatComeAgainAndNotTooMany) {
  StepGraphs graphs;
  const Tensor sum = at::zeros({1}, at::TensorOptions(at::kDouble).device(device()));
  int calls = 0;
  std::vector<TrainStatistics> statistics(3);
  const std::vector<BatchRun> runs{{.first = 0, .count = 2, .batch = 5}};
  graphs.begin({{runs, 4}});
  const auto take = [&](std::int64_t k) {
    const StepGraphs::Call step = [&](std::vector<TrainStatistics>& counted) {
      ++calls;
      sum.add_(static_cast<double>(k));
      for (std::size_t c = 0; c < 2; ++c) counted[c].samples += 5;
    };
    graphs.take({.runs = runs, .numbers = {}, .sizes = {k}, .addresses = {}}, step, statistics);
  };
  for (int repetition = 0; repetition < 3; ++repetition) take(1);
  EXPECT_EQ(calls, 2) << "once as it is, once to be captured";
  EXPECT_EQ(graphs.captured(), 1);
  EXPECT_EQ(statistics[1].samples, 3 * 5) << "of repeated steps as well";
  EXPECT_EQ(statistics[2].samples, 0);
  for (int repetition = 0; repetition < 3; ++repetition) {
    for (std::int64_t k = 2; k <= 140; ++k) take(k);
  }
  EXPECT_EQ(graphs.captured(), 128);
  EXPECT_EQ(sum.item<double>(), 3 * 140 * 141 / 2);
  for (int repetition = 0; repetition < 5000; ++repetition) take(140);
  EXPECT_EQ(graphs.captured(), 128 + 1) << "in the place of one that is not used any more";
  graphs.clear();
  take(1);
  EXPECT_EQ(graphs.captured(), 129);
}

TEST_F(TrainingOnADevice, CapturesStepsWhereTheyComeOftenEnough) {
  const auto captured = [](std::int64_t of_a_pass, double factor) {
    StepGraphs graphs;
    std::vector<TrainStatistics> statistics(1);
    BatchRun run{.first = 0, .count = 1, .batch = 5};
    for (int pass = 0; pass < 3; ++pass, run.rate *= factor) {
      graphs.begin({{{run}, of_a_pass}});
      for (std::int64_t step = 0; step < of_a_pass; ++step) {
        graphs.take(
            {.runs = {run}, .numbers = {}, .sizes = {}, .addresses = {}},
            [](std::vector<TrainStatistics>&) {}, statistics);
      }
    }
    return graphs.captured();
  };
  EXPECT_EQ(captured(3, 0.9), 0) << "no rate comes again";
  EXPECT_EQ(captured(4, 0.9), 3);
  EXPECT_EQ(captured(1, 1), 1) << "in a later pass";
}

TEST_F(TrainingOnADevice, RepeatsStepsOfEveryRateThatALongRunHas) {
  Problem problem("synthetic", "mlr", DType::Float64);
  constexpr std::int64_t kSteps = 6;
  constexpr std::int64_t kRounds = 200;
  TrainOptions options{.batch_size = 0, .local_steps = kSteps, .local_epochs = 0, .lr = 0.01};
  options.lr_schedule = LrSchedule::Exponential;
  options.lr_decay = 0.999;
  problem.shard->use_device_(device());
  std::vector<Tensor> moved;
  for (const bool capture : {true, false}) {
    LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(device()));
    trainer.capture_steps(capture);
    Rows rows{problem.start.values.to(device(), /*non_blocking=*/false, /*copy=*/true),
              problem.start.layout};
    const std::int64_t before = replays_on_device();
    for (std::int64_t round = 1; round <= kRounds; ++round) {
      trainer.train_(rows, problem.clients, round, {});
    }
    EXPECT_EQ(trainer.captured_steps(), capture ? kRounds : 0);
    if (before >= 0) {
      EXPECT_EQ(replays_on_device() - before, capture ? kRounds * (kSteps - 1) : 0)
          << "all but the first step of each rate";
    }
    moved.push_back(rows.values.cpu());
  }
  EXPECT_TRUE(moved[0].equal(moved[1]));
  problem.shard->use_device_(at::kCPU);
}

TEST_F(TrainingOnADevice, RepeatsStepsThatAreAlike) {
  Problem problem("synthetic", "dnn", DType::Float64);
  const TrainOptions options{.batch_size = 0, .local_steps = 9, .local_epochs = 0};
  const StepRule rule{.kind = OptimizerKind::Nesterov, .lr = 0.05, .momentum = 0.5};
  Trained first;
  for (const bool there : {false, true}) {
    const at::Device where = there ? device() : at::Device(at::kCPU);
    problem.shard->use_device_(where);
    LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(where));
    RowOptimizer optimizer(rule, problem.start.layout);
    for (const Steps steps : {Steps::Any, Steps::Alike}) {
      const Rows rows{problem.start.values.clone().to(where), problem.start.layout};
      const Rows centre = rows.clone();
      int calls = 0;
      const auto statistics = trainer.each_step(
          problem.clients, 1, 0,
          [&](LocalStep& step) {
            ++calls;
            step.minimise_(rows, optimizer, {.mu = 0.3, .centre = centre}, {.steps = 3});
            approach_(step.active(centre), step.active(rows), 0.1);
            step.gradient(rows, {}, /*draw=*/1);  // which costs time only
          },
          steps);
      const bool repeated = there && steps == Steps::Alike;
      EXPECT_EQ(calls, repeated ? 2 : 9) << "once as it is, once to be captured";
      EXPECT_EQ(trainer.captured_steps(), repeated ? 1 : 0);
      const Trained trained{rows.values.cpu(), statistics};
      if (!first.rows.defined()) first = trained;
      expect_near(trained, first, 1e-12, where.str());
    }
    problem.shard->use_device_(at::kCPU);
  }
}

TEST_F(TrainingOnADevice, DrawsOfAStepAreThoseOfTheHost) {
  Problem problem("synthetic", "dnn", DType::Float64);
  const TrainOptions options{.batch_size = 4, .local_epochs = 1, .lr = 0.05};
  std::vector<Tensor> sums;
  for (const at::Device where : {at::Device(at::kCPU), device()}) {
    problem.shard->use_device_(where);
    LocalTrainer trainer(*problem.model, *problem.shard, options, problem.context(where));
    const Rows rows{problem.start.values.to(where), problem.start.layout};
    Tensor sum = rows.values.mul(0);
    trainer.each_step(problem.clients, 1, 0, [&](LocalStep& step) {
      for (const std::int64_t draw : {0, 2, 1, 0}) {
        const Tensor gradient = step.gradient(rows, {}, draw);
        sum.narrow(0, 0, step.active()).add_(gradient.narrow(0, 0, step.active()));
      }
    });
    sums.push_back(sum.cpu());
    problem.shard->use_device_(at::kCPU);
  }
  EXPECT_GT(sums[0].norm().item<double>(), 0);
  EXPECT_LT(sums[1].sub(sums[0]).norm().item<double>(), 1e-12 * sums[0].norm().item<double>());
}

/// Glyphs with targets of a kind, made of their labels.
class Targeted : public Dataset {
 public:
  Targeted(std::unique_ptr<Dataset> data, Tensor targets)
      : data_(std::move(data)), targets_(std::move(targets)) {}

  std::vector<std::int64_t> shape() const override { return data_->shape(); }
  std::int64_t classes() const override { return data_->classes(); }
  std::int64_t num_train() const override { return data_->num_train(); }
  std::int64_t num_test() const override { return data_->num_test(); }
  std::vector<std::int64_t> labels() const override { return data_->labels(); }
  Targets targets() const override {
    if (targets_.is_floating_point()) {
      return {.kind = Targets::Kind::Numbers, .count = targets_.size(1)};
    }
    const auto* first = targets_.const_data_ptr<std::int64_t>();
    const std::set<std::int64_t> values(first, first + targets_.numel());
    return {.kind = Targets::Kind::Whole,
            .count = targets_.size(1),
            .values = {values.begin(), values.end()}};
  }
  Samples read(std::span<const std::int64_t> ids) const override {
    Samples samples = data_->read(ids);
    samples.targets = targets_.index_select(0, samples.labels);
    return samples;
  }

 private:
  std::unique_ptr<Dataset> data_;
  Tensor targets_;  // [K, T], of each label
};

/// Targets of the ten labels, and the loss at them: of places, of bits and of numbers.
std::vector<std::pair<Tensor, LossOptions>> losses() {
  const Tensor places = at::tensor({0, 1, 2, 2, -100, 0, -100, -100, -100, 1, 1, 0,    2, 0, 1,
                                    0, 0, 0, 1, -100, 1, 2,    1,    2,    0, 2, -100, 2, 1, 1})
                            .to(at::kLong)
                            .view({10, 3});
  // Of so many classes that LibTorch reads a line's numbers by packs, which do not divide them.
  const Tensor first = places.narrow(1, 0, 1).contiguous();
  const Tensor far = at::where(first.ge(0), first.mul(600), first);
  return {{places, {.label_smoothing = .1}},
          {far, {.label_smoothing = .1}},
          {places.ge(1).to(at::kLong), {}},
          {places.to(at::kDouble).mul_(.1), {}}};
}

/// Six clients whose samples have such targets.
Problem problem_of(const Tensor& targets, const LossOptions& options, DType dtype) {
  Problem problem("glyphs", "mlr", dtype);
  problem.dataset = std::make_unique<Targeted>(std::move(problem.dataset), targets);
  const Loss loss(options, problem.dataset->targets(), 10);
  problem.shard = std::make_unique<Shard>(*problem.dataset, problem.partition,
                                          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5},
                                          make_preparation(problem.data, *problem.dataset), dtype);
  ModelOptions of_model;
  of_model.name = "mlr";
  problem.model = make_model(of_model, problem.dataset->shape(), loss.outputs());
  problem.start = {initial_row(*problem.model->layout(), 3, problem.type).repeat({6, 1}),
                   problem.model->layout()};
  return problem;
}

TEST_F(TrainingOnADevice, EveryLossIsThatOfTheHost) {
  for (const auto& [targets, loss] : losses()) {
    for (const DType dtype : {DType::Float64, DType::Float32}) {
      Problem problem = problem_of(targets, loss, dtype);
      const Loss of(loss, problem.dataset->targets(), 10);
      const double bound = dtype == DType::Float64 ? 1e-12 : 1e-5;
      for (const std::int64_t batch : {1, 4}) {
        TrainOptions options{.batch_size = batch, .local_epochs = 2, .lr = 0.05};
        options.loss = loss;
        const Trained host = train(problem, options, {}, at::kCPU);
        expect_near(train(problem, options, {}, device()), host, bound, "loss");
        EXPECT_GT(host.statistics[0].samples, 0);
      }
      const std::vector<std::int64_t> clients{0, 1, 2, 3, 4, 5};
      const Loss fitted = of.of_outputs(problem.model->classes());
      Evaluator here(
          *problem.model, problem.context(at::kCPU), [] {}, fitted);
      Evaluator there(
          *problem.model, problem.context(device()), [] {}, fitted);
      const std::vector<Score> expected = here.each_own(problem.start, *problem.shard, clients);
      problem.shard->use_device_(device());
      const std::vector<Score> actual = there.each_own(
          {problem.start.values.to(device()), problem.start.layout}, *problem.shard, clients);
      for (std::size_t c = 0; c < expected.size(); ++c) {
        EXPECT_EQ(actual[c].samples, expected[c].samples);
        EXPECT_EQ(actual[c].correct, expected[c].correct);
        EXPECT_EQ(actual[c].hits, expected[c].hits);
        EXPECT_EQ(actual[c].positives, expected[c].positives);
        EXPECT_NEAR(actual[c].loss, expected[c].loss, 1e2 * bound * (1 + expected[c].loss));
      }
    }
  }
}

TEST_F(TrainingOnADevice, EveryLossHasTheSameBitsInAnyBlock) {
  for (const auto& [targets, loss] : losses()) {
    Problem problem = problem_of(targets, loss, DType::Float64);
    problem.shard->use_device_(device());
    // Of further steps the stand-in's own bits differ: a CPU's sigmoid is another at a tensor's end.
    TrainOptions options{.batch_size = 5, .local_steps = 1, .local_epochs = 0};
    options.loss = loss;
    Context context = problem.context(device());
    context.summation = Summation::Reproducible;
    LocalTrainer trainer(*problem.model, *problem.shard, options, context);
    const auto losses_by = [&](std::int64_t width) {
      std::vector<double> all;
      for (std::int64_t first = 0; first < 6; first += width) {
        Rows rows{problem.start.values.narrow(0, first, width).to(device()), problem.start.layout};
        const auto clients = std::span(problem.clients).subspan(first, width);
        for (const TrainStatistics& of : trainer.train_(rows, clients, 1, {})) {
          all.push_back(of.loss);
        }
      }
      return all;
    };
    const std::vector<double> together = losses_by(6);
    for (const std::int64_t width : {1, 2, 3}) {
      EXPECT_EQ(losses_by(width), together) << "blocks of " << width;
    }
    problem.shard->use_device_(at::kCPU);
  }
}

TEST_F(TrainingOnADevice, ScoresAreThoseOfTheHost) {
  for (const DType dtype : {DType::Float64, DType::Float32}) {
    Problem problem("glyphs", "dnn", dtype);
    Evaluator host(*problem.model, problem.context(at::kCPU));
    Evaluator there(*problem.model, problem.context(device()));
    const std::vector<std::int64_t> clients{0, 1, 2, 3, 4, 5};
    const Rows one{problem.start.values.narrow(0, 0, 1), problem.start.layout};
    const std::vector<Score> expected_one = host.each_client(one, *problem.shard, clients);
    const std::vector<Score> expected_own = host.each_own(problem.start, *problem.shard, clients);
    const std::vector<Score> expected_chunks = host.each_chunk(one, *problem.shard);
    problem.shard->use_device_(device());
    const auto moved = [&](const Rows& rows) {
      return Rows{rows.values.to(device()), rows.layout};
    };
    const auto same = [&](const std::vector<Score>& actual, const std::vector<Score>& expected) {
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t c = 0; c < expected.size(); ++c) {
        EXPECT_EQ(actual[c].samples, expected[c].samples);
        EXPECT_EQ(actual[c].correct, expected[c].correct);
        EXPECT_NEAR(actual[c].loss, expected[c].loss,
                    (dtype == DType::Float64 ? 1e-11 : 1e-4) * (1 + expected[c].loss));
      }
    };
    same(there.each_client(moved(one), *problem.shard, clients), expected_one);
    same(there.each_own(moved(problem.start), *problem.shard, clients), expected_own);
    same(there.each_chunk(moved(one), *problem.shard), expected_chunks);
  }
}

}  // namespace
}  // namespace fedhpc::testing
