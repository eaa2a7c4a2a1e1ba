#include "fedhpc/training/local_step.hpp"

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {
namespace {

/// Three clients of glyphs with 9, 6 and 3 training samples on a network with batch norm.
class LocalStepTest : public ::testing::Test {
 protected:
  LocalStepTest() {
    data_.clients = 1;
    data_.samples_per_client = 40;
    dataset_ = open_dataset(data_);
    std::int64_t next = 0;
    for (const std::int64_t count : {9, 6, 3}) {
      std::vector<std::int64_t> samples;
      for (std::int64_t i = 0; i < count; ++i) samples.push_back(next++);
      partition_.train.append(samples);
      partition_.test.append(std::vector<std::int64_t>{next++});
    }
    ModelOptions cnn;
    cnn.name = "cnn2";
    model_ = make_model(cnn, dataset_->shape(), dataset_->classes());
    options_.batch_size = 3;
    options_.local_epochs = 1;
    reopen();
  }

  /// Takes note of changed options.
  void reopen() {
    shard_ = std::make_unique<Shard>(*dataset_, partition_, clients_,
                                     make_preparation(data_, *dataset_), number_);
    trainer_ = std::make_unique<LocalTrainer>(*model_, *shard_, options_,
                                              Context{.type = scalar_type(number_), .seed = 4});
  }

  Rows start() const {
    return Rows{initial_row(*model_->layout(), 4, scalar_type(number_)), model_->layout()}
        .replicate(3);
  }
  std::vector<TrainStatistics> each_step(const std::function<void(LocalStep&)>& take,
                                         std::int64_t pass = 0) {
    return trainer_->each_step(clients_, /*round=*/1, pass, take);
  }
  /// What a step's clients gain at `at` from a draw.
  static Tensor gradient(LocalStep& step, const Rows& at, std::int64_t draw) {
    const Tensor all = step.gradient(at, {}, draw);
    return columns({all.narrow(0, 0, step.active()), at.layout}, Tag::Trainable);
  }
  /// Of every step of a pass the gradients at the start.
  std::vector<Tensor> gradients_of_pass(std::int64_t pass) {
    std::vector<Tensor> all;
    const Rows rows = start();
    each_step([&](LocalStep& step) { all.push_back(gradient(step, rows, 0)); }, pass);
    return all;
  }
  /// Expects draw d of pass 3 to be pass 3 + 2^16 d, in whatever order draws are asked for.
  void expect_draws_of_passes_of_their_own() {
    const std::vector<std::vector<Tensor>> of_draw{
        gradients_of_pass(3), gradients_of_pass(3 + 65536), gradients_of_pass(3 + 2 * 65536)};
    ASSERT_GE(of_draw[0].size(), 3U);
    for (const std::vector<std::int64_t>& order :
         {std::vector<std::int64_t>{0, 1, 0, 2, 1, 0}, std::vector<std::int64_t>{2, 0}}) {
      const Rows rows = start();
      each_step(
          [&](LocalStep& step) {
            const auto s = static_cast<std::size_t>(step.number());
            for (const std::int64_t draw : order) {
              if (s == 0 && draw == 2) continue;  // asked for late
              EXPECT_TRUE(gradient(step, rows, draw).equal(of_draw[draw][s]))
                  << "draw " << draw << " of step " << s;
            }
          },
          /*pass=*/3);
    }
    for (std::size_t s = 0; s < of_draw[0].size(); ++s) {
      EXPECT_FALSE(of_draw[0][s].equal(of_draw[1][s])) << "step " << s;
      EXPECT_FALSE(of_draw[1][s].equal(of_draw[2][s])) << "step " << s;
    }
  }
  static Tensor columns(const Rows& rows, Tag tag) {
    std::vector<Tensor> parts;
    for (const auto& [begin, end] : rows.layout->ranges(tag)) {
      parts.push_back(rows.values.narrow(1, begin, end - begin));
    }
    return at::cat(parts, 1);
  }

  const std::vector<std::int64_t> clients_{0, 1, 2};
  DataOptions data_;
  std::unique_ptr<Dataset> dataset_;
  Partition partition_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Model> model_;
  TrainOptions options_;
  DType number_ = DType::Float64;
  std::unique_ptr<LocalTrainer> trainer_;
};

TEST_F(LocalStepTest, ClientsRunOutOfBatchesAndStay) {
  const Rows rows = start();
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.1}, model_->layout());
  std::vector<std::int64_t> active;
  Rows before;
  each_step([&](LocalStep& step) {
    EXPECT_EQ(step.number(), static_cast<std::int64_t>(active.size()));
    active.push_back(step.active());
    EXPECT_EQ(step.active(rows).count(), step.active());
    before = rows.clone();
    step.descend_(rows, sgd);
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(rows.values[c].equal(before.values[c]), c >= step.active()) << "client " << c;
    }
  });
  EXPECT_EQ(active, (std::vector<std::int64_t>{3, 2, 1}));
}

TEST_F(LocalStepTest, AShareOfTheSamplesIsSeenOnce) {
  // max(1, floor(share n + 1/2)) of 9, 6 and 3 samples, in batches of 3; batch norm leaves out one.
  const std::vector<std::pair<double, std::vector<std::int64_t>>> cases{
      {1.0, {3, 2, 1}}, {0.6, {2, 1, 1}}, {0.5, {2, 1, 1}}, {0.4, {1, 1, 0}}, {0.01, {0, 0, 0}}};
  options_.local_epochs = 5;
  for (const auto& [share, batches] : cases) {
    std::vector<std::int64_t> taken(3, 0);
    const auto count = [&](LocalStep& step) {
      for (std::int64_t c = 0; c < step.active(); ++c) ++taken[static_cast<std::size_t>(c)];
    };
    trainer_->each_batch(clients_, /*round=*/1, /*pass=*/2, share, count);
    EXPECT_EQ(taken, batches) << share;
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(trainer_->batches(clients_[c], share), batches[c]) << share;
    }
  }
  const auto nothing = [](LocalStep&) {};
  EXPECT_THROW(trainer_->each_batch(clients_, 1, 0, 0, nothing), std::logic_error);
  EXPECT_THROW(trainer_->each_batch(clients_, 1, 0, 1.5, nothing), std::logic_error);
}

TEST_F(LocalStepTest, AllSamplesSeenOnceAreAnEpoch) {
  options_.local_epochs = 1;
  const std::vector<Tensor> epoch = gradients_of_pass(7);
  std::vector<Tensor> seen;
  const Rows rows = start();
  trainer_->each_batch(clients_, /*round=*/1, /*pass=*/7, 1,
                       [&](LocalStep& step) { seen.push_back(gradient(step, rows, 0)); });
  ASSERT_EQ(seen.size(), epoch.size());
  for (std::size_t s = 0; s < epoch.size(); ++s) EXPECT_TRUE(seen[s].equal(epoch[s])) << s;
}

TEST_F(LocalStepTest, AGradientOfSomeColumnsIsThatOfAllThere) {
  const Rows rows = start();
  const Tensor buffers = columns(rows, Tag::Buffer).clone();
  each_step([&](LocalStep& step) {
    const auto of = [&](const Columns& some) {
      const Tensor all = step.gradient(rows, {}, 0, some).narrow(0, 0, step.active());
      return columns({all, rows.layout}, Tag::Head);
    };
    const Tensor head = of({.with = Tag::Head});
    EXPECT_TRUE(columns(rows, Tag::Buffer).equal(buffers)) << "statistics stay";
    EXPECT_TRUE(of({.with = Tag::Trainable}).equal(head));
  });
}

TEST_F(LocalStepTest, ABatchMovesBuffersAndCountsItsLossOnce) {
  const Rows once = start();
  const Rows often = start();
  RowOptimizer rule({.kind = OptimizerKind::Momentum, .lr = 0.05, .momentum = 0.5},
                    model_->layout());
  rule.reset(often.values);
  const auto of_one = each_step([&](LocalStep& step) { step.gradient(once); });
  const auto of_many = each_step([&](LocalStep& step) {
    const Tensor first = step.gradient(often).clone();
    EXPECT_TRUE(
        step.gradient(often).narrow(0, 0, step.active()).equal(first.narrow(0, 0, step.active())))
        << "the same batch";
    const Rows elsewhere = often.clone();
    step.descend_(elsewhere, rule);  // further gradients at other models
    EXPECT_TRUE(columns(elsewhere, Tag::Buffer).equal(columns(often, Tag::Buffer)));
  });
  EXPECT_TRUE(columns(often, Tag::Buffer).equal(columns(once, Tag::Buffer)));
  EXPECT_FALSE(columns(once, Tag::Buffer).equal(columns(start(), Tag::Buffer)));
  EXPECT_TRUE(columns(often, Tag::Trainable).equal(columns(start(), Tag::Trainable)));
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(of_many[c].loss, of_one[c].loss);
    EXPECT_EQ(of_many[c].samples, static_cast<double>(shard_->train_count(clients_[c])));
  }
}

TEST_F(LocalStepTest, PlainStepsFollowTheGradientWithItsProximalTerm) {
  const Rows centre = start();
  centre.values.add_(0.01);
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05}, model_->layout());
  for (const double mu : {3.0, 20.0}) {  // lr mu = 1 forgets the old weights, but no buffers
    for (const double gamma : {0.0, 0.4}) {
      const Penalty penalty{.mu = mu, .centre = centre, .gamma = gamma, .rho = 0.1};
      const Rows fused = start();
      const Rows by_hand = start();
      each_step([&](LocalStep& step) { step.descend_(fused, sgd, penalty); });
      each_step([&](LocalStep& step) {
        const Tensor gradient = step.gradient(by_hand, penalty);
        add_columns_(by_hand.values.narrow(0, 0, step.active()),
                     gradient.narrow(0, 0, step.active()), -0.05, *model_->layout(),
                     Tag::Trainable);
      });
      EXPECT_LT(fused.values.sub(by_hand.values).abs().max().item<double>(), 1e-13);
      EXPECT_GT(fused.values.sub(start().values).abs().max().item<double>(), 1e-3);
    }
  }
}

TEST_F(LocalStepTest, StepsThatLayersTakeThemselvesHaveTheBitsOfTwoPasses) {
  options_.batch_size = 4;  // of 9, 6 and 3 samples: 4, 4, 1; 4, 2; 3
  options_.local_epochs = 3;
  options_.lr_schedule = LrSchedule::Exponential;  // rates of their own for clients of a block
  options_.lr_unit = LrUnit::Epoch;
  options_.lr_decay = 0.9;
  for (const char* name : {"dnn", "cnn2", "mlr"}) {
    ModelOptions of;
    of.name = name;
    if (of.name == "dnn") of.hidden = {70, 9};
    model_ = make_model(of, dataset_->shape(), dataset_->classes());
    for (const auto& [number, late] : {std::pair{DType::Float32, false}, {DType::Float64, true}}) {
      number_ = number;
      options_.stragglers = late ? std::vector<double>{0.8} : std::vector<double>{0};
      reopen();
      Rows centre = start();
      for (const int c : {0, 1, 2}) centre.values[c].mul_(0.9 - 0.3 * c).add_(0.01 * c);
      for (const double mu : {13.0, 20.0}) {
        for (const double gamma : {0.0, 0.4}) {
          const Penalty penalty{.mu = mu, .centre = centre, .gamma = gamma, .rho = 0.1};
          RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05, .scheduled = true},
                           model_->layout());
          const Rows fused = start();
          const Rows by_hand = start();
          DeviceConstants constants;
          each_step([&](LocalStep& step) { step.descend_(fused, sgd, penalty); });
          each_step([&](LocalStep& step) {
            const Tensor gradient = step.gradient(by_hand);
            step.each_rate([&](std::int64_t first, std::int64_t count, double rate) {
              descend_(by_hand, gradient, 0.05 * rate, penalty, first, count, constants);
            });
          });
          EXPECT_TRUE(fused.values.equal(by_hand.values)) << name << mu << gamma;
          EXPECT_FALSE(fused.values.equal(start().values));
        }
      }
    }
  }
}

TEST_F(LocalStepTest, AWeightAtTheCentreWithoutAGradientStaysThere) {
  // A hidden unit that never fires has gradients of 0: its weights are to be those that were
  // received, to the last bit, whatever the pull.
  ModelOptions dnn;
  dnn.name = "dnn";
  dnn.hidden = {8};
  model_ = make_model(dnn, dataset_->shape(), dataset_->classes());
  reopen();
  const auto silent = [&] {
    const Rows rows = start();
    rows.values.narrow(1, model_->layout()->fields()[1].offset, 1).fill_(-1e3);  // its bias
    return rows;
  };
  for (const double mu : {0.3, 3.0, 7.0, 14.0, 20.0, 30.0}) {
    const Penalty penalty{.mu = mu, .centre = silent()};
    RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05}, model_->layout());
    const Rows rows = silent();
    Tensor still;
    each_step([&](LocalStep& step) {
      const Tensor none = step.gradient(rows, {}).eq(0);
      still = still.defined() ? still.logical_and(none) : none.clone();
      step.descend_(rows, sgd, penalty);
    });
    ASSERT_GT(still.sum().item<std::int64_t>(), 100);
    EXPECT_TRUE(rows.values.masked_select(still).equal(silent().values.masked_select(still))) << mu;
    EXPECT_FALSE(rows.values.equal(silent().values));
  }
}

TEST_F(LocalStepTest, ProblemsAreSolvedInStepsOrToAnAccuracy) {
  const Penalty penalty{.mu = 1000, .centre = start()};
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 5e-5}, model_->layout());
  const Rows by_verb = start();
  const Rows by_hand = start();
  each_step([&](LocalStep& step) { step.minimise_(by_verb, sgd, penalty, {.steps = 3}); });
  each_step([&](LocalStep& step) {
    for (int k = 0; k < 3; ++k) step.descend_(by_hand, sgd, penalty);
  });
  EXPECT_TRUE(by_verb.values.equal(by_hand.values));

  const double accuracy = 1;  // where ReLUs bend, gradients of 0.1 stay
  const auto square = [&](LocalStep& step, const Rows& at, std::int64_t c) {
    const Rows gradient{step.gradient(at, penalty).clone(), model_->layout()};
    return columns(gradient, Tag::Trainable)[c].square().sum().item<double>();
  };
  const Rows solved = start();
  each_step([&](LocalStep& step) {
    step.minimise_(solved, sgd, penalty, {.steps = 3000, .accuracy = accuracy});
    for (std::int64_t c = 0; c < step.active(); ++c) {
      EXPECT_LE(square(step, solved, c), accuracy);
      EXPECT_GT(square(step, solved, c), accuracy / 4) << "no further than asked";
    }
  });
}

TEST_F(LocalStepTest, DrawsAreBatchesOfPassesOfTheirOwn) {
  options_.batch_size = 4;  // of 9, 6 and 3 samples: 4, 4; 4, 2; 3
  options_.local_epochs = 2;
  reopen();
  expect_draws_of_passes_of_their_own();
}

TEST_F(LocalStepTest, DrawsHaveCropsOfTheirOwn) {
  data_.augment = Augment::CropFlip;
  options_.batch_size = 0;  // where only crops tell draws apart
  options_.local_epochs = 3;
  reopen();
  expect_draws_of_passes_of_their_own();
}

TEST_F(LocalStepTest, AFullBatchIsTheSameInEveryDraw) {
  options_.batch_size = 0;
  reopen();
  const Rows rows = start();
  each_step([&](LocalStep& step) {
    const Tensor first = gradient(step, rows, 0);
    EXPECT_TRUE(gradient(step, rows, 1).equal(first));
  });
}

TEST_F(LocalStepTest, FurtherDrawsMoveNoBuffersAndCountNoLoss) {
  const Rows plain = start();
  const Rows drawn = start();
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05}, model_->layout());
  const auto of_plain = each_step([&](LocalStep& step) { step.descend_(plain, sgd); });
  const auto of_drawn = each_step([&](LocalStep& step) {
    const Rows before = drawn.clone();
    step.descend_(drawn, sgd);
    step.gradient(drawn, {}, 1);
    step.gradient(before, {}, 2);
    const Rows again = before.clone();
    step.descend_(again, sgd);  // on draw 0 again, whatever has been drawn since
    EXPECT_TRUE(columns(again, Tag::Trainable).equal(columns(drawn, Tag::Trainable)));
  });
  EXPECT_TRUE(drawn.values.equal(plain.values));
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(of_drawn[c].loss, of_plain[c].loss);
    EXPECT_EQ(of_drawn[c].samples, of_plain[c].samples);
  }
}

TEST_F(LocalStepTest, CountsEveryGradient) {
  const Rows rows = start();
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05}, model_->layout());
  const auto counted = each_step([&](LocalStep& step) {
    step.descend_(rows, sgd);
    step.gradient(rows, {}, 1);
    step.minimise_(rows, sgd, {}, {.steps = 3});
  });
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(counted[c].gradients, 5 * trainer_->steps(clients_[c], 1));
  }
}

TEST_F(LocalStepTest, CountsNoGradientOfClientsThatHaveSolvedTheirProblem) {
  // Alone a client is asked until it is done; in a block others go on.
  const double accuracy = 0.5;
  const auto solve = [&](const std::vector<std::int64_t>& clients) {
    const Rows own{start().values.narrow(0, 0, static_cast<std::int64_t>(clients.size())).clone(),
                   model_->layout()};
    RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = 0.05}, model_->layout());
    return trainer_->each_step(clients, /*round=*/1, /*pass=*/0, [&](LocalStep& step) {
      step.minimise_(own, sgd, {}, {.steps = 50, .accuracy = accuracy});
    });
  };
  const auto together = solve(clients_);
  std::set<std::int64_t> different;
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    const auto alone = solve({clients_[c]});
    EXPECT_EQ(together[c].gradients, alone[0].gradients);
    EXPECT_EQ(together[c].gradient_values, alone[0].gradient_values);
    EXPECT_LT(together[c].gradients, 50 * trainer_->steps(clients_[c], 1));
    different.insert(together[c].gradients);
  }
  EXPECT_GT(different.size(), 1U) << "some stop before others";
}

TEST_F(LocalStepTest, DrawsDoNotRunIntoEachOther) {
  const Rows rows = start();
  const auto ask = [&](std::int64_t draw) {
    return [&rows, draw](LocalStep& step) { step.gradient(rows, {}, draw); };
  };
  EXPECT_THROW(each_step(ask(-1)), std::logic_error);
  EXPECT_THROW(each_step(ask(1 << 15)), std::logic_error);
  EXPECT_THROW(each_step(ask(1), /*pass=*/65536), std::logic_error);
}

TEST_F(LocalStepTest, ActiveClientsMustBeTheFirst) {
  const std::vector<std::int64_t> mixed{2, 0};
  const auto take = [](LocalStep& step) { step.active(); };
  EXPECT_THROW(trainer_->each_step(mixed, 1, 0, take), Error);
}

TEST_F(LocalStepTest, ALossBelowTheHeadMayStandInForIt) {
  // Cross-entropy of the head's own weights, written once more as a function of what it sees.
  const Field& head = model_->layout()->field("fc1.weight");
  const Tensor weight = start().values[0].narrow(0, head.offset, head.size).view(head.shape);
  std::vector<Tensor> expected;
  Rows rows = start();
  const std::vector<TrainStatistics> usual = each_step([&](LocalStep& step) {
    const Tensor all = step.gradient(rows, {}, 0, {.without = Tag::Head});
    expected.push_back(all.narrow(0, 0, step.active()).narrow(1, 0, head.offset).clone());
  });
  const Rows moved = rows;
  rows = start();
  const std::vector<TrainStatistics> below = each_step([&](LocalStep& step) {
    const auto loss = [&](std::int64_t, const Tensor& embedding,
                          std::span<const std::int64_t> labels, const Tensor& gradient) {
      const Tensor p = embedding.matmul(weight.t()).softmax(1);
      double sum = 0;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const Tensor own = p[static_cast<std::int64_t>(i)][labels[i]];
        sum -= std::log(own.item<double>());
        own.sub_(1);
      }
      const auto count = static_cast<double>(labels.size());
      gradient.copy_(p.matmul(weight).div(count));
      return sum / count;
    };
    const Tensor all = step.gradient_below_head(rows, loss);
    const Tensor actual = all.narrow(0, 0, step.active()).narrow(1, 0, head.offset);
    const Tensor& same = expected[static_cast<std::size_t>(step.number())];
    EXPECT_LT(actual.sub(same).abs().max().item<double>(), 1e-12);
    EXPECT_GT(actual.abs().max().item<double>(), 1e-3);
  });
  EXPECT_TRUE(rows.values.equal(moved.values)) << "batch norm's statistics";
  for (std::size_t c = 0; c < usual.size(); ++c) {
    EXPECT_NEAR(below[c].loss, usual[c].loss, 1e-12);
    EXPECT_EQ(below[c].samples, usual[c].samples);
    EXPECT_EQ(below[c].gradient_values, usual[c].gradient_values);
  }
}

TEST_F(LocalStepTest, ATermOfWhatTheHeadSeesIsPartOfTheLoss) {
  // mean <z, a>^2 / 2 over a batch, once as a term and once as a loss in the head's place
  const Tensor a = at::arange(1, 1 + model_->embedding_size(), at::kDouble).reciprocal();
  constexpr double kLr = 0.05;
  RowOptimizer sgd({.kind = OptimizerKind::Sgd, .lr = kLr}, model_->layout());
  const Rows still = start();
  std::vector<std::int64_t> samples(3, 0);
  const std::vector<TrainStatistics> counted = each_step([&](LocalStep& step) {
    const Rows without = start();
    sgd.reset(without.values);
    step.descend_(without, sgd);
    const Rows with = start();
    step.descend_(with, sgd,
                  [&](const BatchRun& run, const Tensor& embedding, const Tensor& gradient) {
                    EXPECT_EQ(embedding.size(0), run.count);
                    EXPECT_EQ(embedding.size(1), run.batch);
                    for (std::int64_t c = 0; c < run.count; ++c)
                      samples[run.first + c] += run.batch;
                    gradient.add_(embedding.matmul(a).unsqueeze(2) * a / run.batch);
                  });
    const Tensor below = step.gradient_below_head(
        start(), [&](std::int64_t, const Tensor& embedding, std::span<const std::int64_t> labels,
                     const Tensor& gradient) {
          gradient.copy_(embedding.matmul(a).unsqueeze(1) * a / std::ssize(labels));
          return 0.0;
        });
    const std::int64_t head = model_->layout()->field("fc1.weight").offset;
    for (const Range& range : model_->layout()->ranges(Tag::Trainable, {.without = Tag::Head})) {
      const auto part = [&](const Tensor& rows) {
        return rows.narrow(0, 0, step.active()).narrow(1, range.first, range.size());
      };
      EXPECT_GT(part(below).abs().max().item<double>(), 1e-6);
      EXPECT_LT(
          (part(without.values) - part(with.values) - kLr * part(below)).abs().max().item<double>(),
          1e-12);
    }
    const auto of_head = [&](const Rows& rows) {
      return rows.values.narrow(1, head, rows.values.size(1) - head);
    };
    EXPECT_TRUE(of_head(with).equal(of_head(without)));
  });
  for (std::size_t c = 0; c < counted.size(); ++c) {
    EXPECT_EQ(counted[c].samples, static_cast<double>(samples[c]));
  }
}

TEST_F(LocalStepTest, AnEmbeddingIsWhatTheHeadSeesInEvaluation) {
  options_.batch_size = 0;  // all samples in their order
  reopen();
  const Rows rows = start();
  for (const auto& [begin, end] : rows.layout->ranges(Tag::Buffer)) {
    rows.values.narrow(1, begin, end - begin).add_(0.3);  // statistics that no batch has
  }
  const Tensor before = rows.values.clone();
  std::int64_t seen = 0;
  const std::vector<TrainStatistics> counted = each_step([&](LocalStep& step) {
    const Tensor embedded = step.embedding(rows);
    for (std::int64_t c = 0; c < step.active(); ++c) {
      const std::int64_t batch = step.samples(c);
      const Activations alone =
          model_->make_activations(1, batch, rows.values.options(), Use::Evaluation);
      std::vector<std::int64_t> positions(static_cast<std::size_t>(batch));
      std::iota(positions.begin(), positions.end(), 0);
      const Tensor targets = at::empty({1, batch, 1}, shard_->target_type());
      shard_->gather_train(clients_[static_cast<std::size_t>(c)], positions, 0, alone.input(),
                           targets);
      model_->forward(rows.narrow(c).values, alone);
      EXPECT_TRUE(embedded[c].narrow(0, 0, batch).equal(model_->embedding(alone)[0]));
      seen += batch;
    }
  });
  EXPECT_TRUE(rows.values.equal(before));
  EXPECT_EQ(seen, 18);
  for (const TrainStatistics& of_client : counted) EXPECT_EQ(of_client.gradients, 0);
}

}  // namespace
}  // namespace fedhpc
