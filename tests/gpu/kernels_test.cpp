// Kernels of activations, losses and batches against the library's functions for the host.

#include <cmath>
#include <stdexcept>
#include <vector>

#include "fedhpc/data/augment.hpp"
#include "fedhpc/training/loss.hpp"

#include "gpu/kernel_case.hpp"
#include "gpu/kernels/host_launcher.hpp"

namespace fedhpc::test {

namespace {

class Kernels : public KernelTest {
 protected:
  Placed place(const Tensor& values, Gaps gaps = Gaps::None, std::int64_t channels = 0) const {
    return {values, gaps, place_of(on_device()), channels};
  }
};

Tensor random_labels(std::int64_t clients, std::int64_t batch, std::int64_t classes) {
  return at::randint(classes, {clients, batch}, at::kLong);
}

TEST_P(Kernels, CrossEntropyLikeTheHosts) {
  for (const std::int64_t classes : {1, 3, 10, 70, 200}) {
    for (const std::int64_t batch : {1, 5, 33}) {
      for (const Gaps gaps : kAllGaps) {
        const Tensor logits = 3 * random({4, batch, classes});
        const Tensor labels = random_labels(4, batch, classes);
        Tensor gradient = at::zeros_like(logits);
        std::vector<double> loss{1, 2, 3, 4};
        softmax_cross_entropy(logits, labels, gradient, loss.data());
        const Placed z = place(logits, gaps);
        const Tensor y = placed(labels);
        const Tensor sums = doubles({1, 2, 3, 4});
        const Placed g = place(at::full_like(logits, kNan), gaps);
        kernels().cross_entropy({.type = real(),
                                 .logits = z.stack(),
                                 .labels = y.const_data_ptr<std::int64_t>(),
                                 .label_stride = batch,
                                 .gradient = g.stack(),
                                 .loss = static_cast<double*>(sums.data_ptr())});
        expect_close(sums.cpu(), at::tensor(loss, at::kDouble));
        expect_close(g.values(), gradient);
        expect_close(z.values(), logits);
        // without a gradient, and with one in the place of the logits
        for (const bool in_place : {false, true}) {
          const Tensor again = doubles({1, 2, 3, 4});
          kernels().cross_entropy({.type = real(),
                                   .logits = z.stack(),
                                   .labels = y.const_data_ptr<std::int64_t>(),
                                   .label_stride = batch,
                                   .gradient = in_place ? z.stack() : DeviceStack{},
                                   .loss = static_cast<double*>(again.data_ptr())});
          EXPECT_TRUE(again.cpu().equal(sums.cpu())) << "the same bits every time";
          if (!in_place) expect_close(z.values(), logits);
        }
        EXPECT_TRUE(z.values().equal(g.values()));
      }
    }
  }
}

TEST_P(Kernels, CrossEntropyOfNanIsNanOfThatClientAlone) {
  Tensor logits = random({3, 4, 50});
  logits.select(0, 1).select(0, 2).fill_(kNan);
  logits.select(0, 2).select(0, 0)[7] = kNan;
  const Placed z = place(logits);
  const Placed g = place(logits);
  const Tensor y = placed(random_labels(3, 4, 50));
  const Tensor sums = doubles({0, 0, 0});
  kernels().cross_entropy({.type = real(),
                           .logits = z.stack(),
                           .labels = y.const_data_ptr<std::int64_t>(),
                           .label_stride = 4,
                           .gradient = g.stack(),
                           .loss = static_cast<double*>(sums.data_ptr())});
  const Tensor loss = sums.cpu();
  EXPECT_TRUE(std::isfinite(loss[0].item<double>()));
  EXPECT_TRUE(std::isnan(loss[1].item<double>()));
  EXPECT_TRUE(std::isnan(loss[2].item<double>()));
  EXPECT_TRUE(g.values().select(0, 1).select(0, 2).isnan().all().item<bool>());
  EXPECT_TRUE(g.values().select(0, 2).select(0, 0).isnan().all().item<bool>());
  EXPECT_FALSE(g.values().select(0, 2).select(0, 1).isnan().any().item<bool>());
}

TEST_P(Kernels, ScoresLikeTheHosts) {
  for (const std::int64_t classes : {1, 2, 10, 40}) {
    for (const std::int64_t batch : {1, 8, 37}) {
      // Few different values: ties. NaN in one of them.
      Tensor logits = at::randint(3, {1, batch, classes}, at::kLong).to(type());
      logits[0][batch - 1][0] = kNan;
      const Tensor labels = random_labels(1, batch, classes);
      const Tensor known_correct = at::zeros({batch}, at::kDouble);
      const Tensor known_loss = at::zeros({batch}, at::kDouble);
      score_samples(logits[0], labels.const_data_ptr<std::int64_t>(),
                    known_correct.data_ptr<double>(), known_loss.data_ptr<double>());
      const Placed z = place(logits, Gaps::Odd);
      const Tensor y = placed(labels);
      const Tensor correct = placed(at::full({batch}, kNan, at::kDouble));
      const Tensor loss = placed(at::full({batch}, kNan, at::kDouble));
      kernels().score({.type = real(),
                       .logits = z.stack(),
                       .labels = y.const_data_ptr<std::int64_t>(),
                       .correct = static_cast<double*>(correct.data_ptr()),
                       .loss = static_cast<double*>(loss.data_ptr())});
      EXPECT_TRUE(correct.cpu().equal(known_correct));
      expect_close(loss.cpu(), known_loss);
    }
  }
}

TEST_P(Kernels, ReluAndItsWayBackKeepNan) {
  struct Case {
    std::int64_t width;
    std::int64_t channels;  // by channels, else 0
  };
  for (const auto& [width, channels] : {Case{1, 0}, {8, 0}, {30, 0}, {8, 4}, {30, 5}}) {
    for (const Gaps gaps : kAllGaps) {
      Tensor x = random({3, 4, width});
      x[1][2][0] = kNan;
      x[0][0][0] = -0.0;
      const Tensor dy = random({3, 4, width});
      const Placed in = place(x, gaps, channels);
      const Placed out = place(at::zeros_like(x), gaps, channels);
      kernels().relu({.type = real(), .x = in.stack(), .y = out.stack()});
      const Tensor y = at::where(x.lt(0), at::zeros_like(x), x);
      EXPECT_TRUE(at::where(y.isnan(), at::full_like(y, 5), y)
                      .equal(at::where(out.values().isnan(), at::full_like(y, 5), out.values())));
      const Placed gradient = place(dy, gaps, channels);
      const Placed back = place(at::full_like(x, kNan), Gaps::Odd, channels);  // other gaps
      kernels().relu_gradient(
          {.type = real(), .y = out.stack(), .dy = gradient.stack(), .dx = back.stack()});
      EXPECT_TRUE(back.values().equal(at::where(y.gt(0), dy, at::zeros_like(dy))));
      kernels().relu({.type = real(), .x = in.stack(), .y = in.stack()});
      expect_close(in.values(), y);
    }
  }
}

TEST_P(Kernels, BiasesAndTheirGradients) {
  const std::int64_t channels = 8;
  for (const auto& [places, by_channels] : std::vector<std::pair<std::int64_t, bool>>{
           {1, false}, {4, false}, {9, false}, {256, false}, {4, true}, {9, true}}) {
    const std::int64_t lie = by_channels ? channels : 0;
    for (const Gaps gaps : kAllGaps) {
      const Tensor y = random({3, 5, channels * places});
      const Tensor bias = random({3, channels});
      const Placed out = place(y, gaps, lie);
      const Placed from = place(bias, gaps);
      kernels().add_bias(
          {.type = real(), .y = out.stack(), .bias = from.columns(), .places = places});
      const Tensor images = y.view({3, 5, channels, places});
      expect_close(out.values(), (images + bias.view({3, 1, channels, 1})).view_as(y));
      const Tensor sums = images.sum({1, 3});
      for (const double keep : {0.0, 0.25}) {
        const Tensor old = keep == 0 ? at::full_like(sums, kNan) : random({3, channels});
        const Placed sink = place(old, gaps);
        const Placed dy = place(y, gaps, lie);
        kernels().bias_gradient({.type = real(),
                                 .dy = dy.stack(),
                                 .places = places,
                                 .sink = {.out = sink.columns(), .scale = -2, .keep = keep}});
        expect_close(sink.values(), keep == 0 ? -2 * sums : keep * old - 2 * sums, 10);
      }
    }
  }
}

TEST_P(Kernels, BiasesAndTheirGradientsWhereAReluFollows) {
  // Less, as many and more than are read at once, and more than a thread takes.
  for (const std::int64_t batch : {1, 8, 20, 70}) {
    for (const std::int64_t places : {1, 4}) {
      for (const Gaps gaps : kAllGaps) {
        Tensor x = random({3, batch, 6 * places});
        x[0][0][0] = kNan;
        const Tensor bias = random({3, 6});
        const Placed out = place(x, gaps);
        kernels().add_bias({.type = real(),
                            .y = out.stack(),
                            .bias = place(bias, gaps).columns(),
                            .places = places,
                            .relu = true});
        const Tensor y =
            (x.view({3, batch, 6, places}) + bias.view({3, 1, 6, 1})).clamp_min(0).view_as(x);
        EXPECT_TRUE(out.values().isnan().equal(y.isnan()));
        expect_close(out.values().nan_to_num(), y.nan_to_num());

        const Tensor dy = random({3, batch, 6 * places});
        const Placed gradient = place(dy, gaps);
        const Placed sink = place(bias, gaps);
        kernels().bias_gradient({.type = real(),
                                 .dy = gradient.stack(),
                                 .places = places,
                                 .sink = {.out = sink.columns(), .scale = -2, .keep = 0.5},
                                 .rectified = out.stack()});
        const Tensor dx = dy.masked_fill(y.gt(0).logical_not(), 0);
        EXPECT_TRUE(gradient.values().equal(dx));
        expect_close(sink.values(), 0.5 * bias - 2 * dx.view({3, batch, 6, places}).sum({1, 3}),
                     10);
      }
    }
  }
}

class Gathers : public Kernels {
 protected:
  static constexpr std::int64_t kClients = 3;
  static constexpr std::int64_t kBatch = 4;
  static constexpr std::int64_t kSteps = 2;
  static constexpr std::int64_t kSamples = 10;

  /// Crops of all kinds; one sample is missing.
  static std::vector<DevicePick> picks() {
    std::vector<DevicePick> picks;
    for (std::int64_t i = 0; i < kSteps * kClients * kBatch; ++i) {
      picks.push_back({.row = i * 7 % kSamples,
                       .crop_row = static_cast<std::int32_t>(i * 5 % 9),
                       .crop_column = static_cast<std::int32_t>(i * 4 % 9),
                       .flip = static_cast<std::int32_t>(i % 2),
                       .unused = 0});
    }
    picks[kClients * kBatch + 5].row = -1;
    return picks;
  }
  Tensor placed_picks(std::vector<DevicePick> picks) const {
    const auto bytes = static_cast<std::int64_t>(picks.size() * sizeof(DevicePick));
    return placed(at::from_blob(picks.data(), {bytes}, at::kByte).clone());
  }
};

TEST_P(Gathers, PixelsAreCroppedMirroredAndStandardised) {
  for (const ImageShape size : {ImageShape{3, 8, 8}, ImageShape{1, 5, 7}}) {
    const std::int64_t width = size.channels * size.height * size.width;
    const Tensor source = at::randint(256, {kSamples, width}, at::kLong).to(at::kByte);
    const Tensor known = random_labels(1, kSamples, 10).view({kSamples});
    std::vector<double> table(256);
    std::vector<double> mean(static_cast<std::size_t>(width));
    std::vector<double> factor(mean.size());
    for (std::size_t x = 0; x < table.size(); ++x)
      table[x] = (static_cast<double>(x) / 255 - .3) / .7;
    for (std::size_t d = 0; d < mean.size(); ++d) {
      mean[d] = 100 + static_cast<double>(d) / 3;
      factor[d] = 1 / (1.0 + static_cast<double>(d));
    }
    for (const bool crops : {true, false}) {
      for (const bool by_feature : {true, false}) {
        const auto all = picks();
        Tensor expected = at::full({kClients, kBatch, width}, 9, type());
        Tensor labels = at::full({kClients, kBatch}, 9, at::kLong);
        std::vector<std::uint8_t> image(static_cast<std::size_t>(width));
        for (std::int64_t c = 0; c < kClients; ++c) {
          for (std::int64_t b = 0; b < kBatch; ++b) {
            const DevicePick& pick = all[static_cast<std::size_t>((kClients + c) * kBatch + b)];
            if (pick.row < 0) continue;
            labels[c][b] = known[pick.row];
            const auto* pixels = source.const_data_ptr<std::uint8_t>() + pick.row * width;
            std::copy_n(pixels, width, image.data());
            if (crops) {
              crop_image(pixels, size, {pick.crop_row, pick.crop_column, pick.flip != 0},
                         image.data());
            }
            for (std::int64_t d = 0; d < width; ++d) {
              const auto i = static_cast<std::size_t>(d);
              const double value = by_feature
                                       ? (static_cast<double>(image[i]) - mean[i]) * factor[i]
                                       : table[image[i]];
              expected[c][b][d] = value;
            }
          }
        }
        for (const Gaps gaps : kAllGaps) {
          const Tensor device_picks = placed_picks(all);
          const Tensor pixels = placed(source);
          const Tensor known_labels = placed(known);
          const Tensor step = longs({1});
          const Tensor standards = doubles(table);
          const Tensor means = doubles(mean);
          const Tensor factors = doubles(factor);
          const Placed inputs = place(at::full_like(expected, 9), gaps);
          const Placed to = place(at::full_like(labels, 9), gaps);
          kernels().gather(
              {.type = real(),
               .pixels = true,
               .source = pixels.data_ptr(),
               .source_targets = known_labels.const_data_ptr(),
               .picks = static_cast<const DevicePick*>(device_picks.data_ptr()),
               .pick_clients = kClients,
               .pick_batch = kBatch,
               .step = step.const_data_ptr<std::int64_t>(),
               .table = static_cast<const double*>(standards.data_ptr()),
               .mean = by_feature ? static_cast<const double*>(means.data_ptr()) : nullptr,
               .factor = by_feature ? static_cast<const double*>(factors.data_ptr()) : nullptr,
               .channels = crops ? size.channels : 0,
               .height = size.height,
               .image_width = size.width,
               .inputs = inputs.stack(),
               .targets = to.columns().data,
               .target_words = 2,
               .target_stride = 2 * to.columns().stride});
          EXPECT_TRUE(inputs.values().equal(expected)) << "values to the last bit";
          EXPECT_TRUE(to.values().equal(labels));
        }
      }
    }
  }
}

TEST_P(Gathers, NumbersAreCopied) {
  const std::int64_t width = 11;
  const Tensor source = random({kSamples, width});
  const Tensor known = random({kSamples, 3});  // targets of a regression
  const Tensor values = placed(source);
  const Tensor known_labels = placed(known);
  const Placed inputs = place(at::full({1, kBatch, width}, 9, type()), Gaps::Odd);
  const Tensor to = placed(at::zeros({kBatch, 3}, type()));
  kernels().gather({.type = real(),
                    .source = values.data_ptr(),
                    .source_targets = known_labels.const_data_ptr(),
                    .first = 3,
                    .inputs = inputs.stack(),
                    .targets = to.data_ptr(),
                    .target_words = 3 * static_cast<std::int64_t>(to.itemsize()) / 4});
  EXPECT_TRUE(inputs.values()[0].equal(source.narrow(0, 3, kBatch)));
  EXPECT_TRUE(to.cpu().equal(known.narrow(0, 3, kBatch)));
}

TEST_P(Kernels, CountersAdvance) {
  const Tensor counters = longs({5, 0, -1});
  kernels().advance(static_cast<std::int64_t*>(counters.data_ptr()), 2);
  EXPECT_TRUE(counters.cpu().equal(at::tensor({6, 1, -1}, at::kLong)));
}

TEST_P(Kernels, NothingToDoIsDone) {
  const auto none = [&]<typename Call>(Call call) {
    call.type = real();
    return call;
  };
  kernels().product(none(DeviceProduct{}));
  kernels().gather(none(DeviceGather{}));
  kernels().cross_entropy(none(DeviceCrossEntropy{}));
  kernels().score(none(DeviceScore{}));
  kernels().relu(none(DeviceRelu{}));
  kernels().relu_gradient(none(DeviceReluGradient{}));
  kernels().add_bias(none(DeviceBias{}));
  kernels().bias_gradient(none(DeviceBiasGradient{}));
  kernels().unfold(none(DeviceUnfold{}));
  kernels().fold(none(DeviceUnfold{}));
  kernels().turn_to(none(DeviceTurn{}));
  kernels().turn_from(none(DeviceTurn{}));
  kernels().max_pool(none(DeviceMaxPool{}));
  kernels().max_pool_gradient(none(DeviceMaxPool{}));
  kernels().average_pool(none(DeviceAveragePool{}));
  kernels().average_pool_gradient(none(DeviceAveragePool{}));
  kernels().batch_norm(none(DeviceBatchNorm{}));
  kernels().sample_norm(none(DeviceSampleNorm{}));
  kernels().accumulate(none(DeviceAccumulate{}));
  kernels().step(none(DeviceStep{}));
  kernels().add_penalty_gradient(none(DevicePenaltyGradient{}));
  kernels().add_weighted(none(DeviceWeightedSum{}));
  DeviceBatchNormGradient back{};
  back.norm.type = real();
  kernels().batch_norm_gradient(back);
  DeviceSampleNormGradient part_back{};
  part_back.norm.type = real();
  kernels().sample_norm_gradient(part_back);
  kernels().advance(nullptr, 0);
}

TEST_P(Kernels, CapturedWorkRunsAgainOnWhatTheMemoryHolds) {
  if (!on_device()) GTEST_SKIP() << "the host captures nothing";
  const Tensor x = placed(at::full({8}, -1, type()));
  const Tensor counters = longs({0});
  const DeviceStack stack{x.data_ptr(), 1, 1, 8, 8, 8};
  const auto graph = kernels().capture([&] {
    kernels().relu({.type = real(), .x = stack, .y = stack});
    kernels().advance(static_cast<std::int64_t*>(counters.data_ptr()), 1);
  });
  EXPECT_EQ(counters.cpu()[0].item<std::int64_t>(), 0);
  for (int i = 1; i <= 3; ++i) {
    x.copy_(at::full({8}, i % 2 > 0 ? i : -i, type()));
    graph->replay();
    EXPECT_EQ(counters.cpu()[0].item<std::int64_t>(), i);
    EXPECT_EQ(x.cpu()[7].item<double>(), i % 2 > 0 ? i : 0);
  }
}

TEST_P(Kernels, WorkThatWaitsCannotBeCaptured) {
  if (!on_device()) GTEST_SKIP() << "the host captures nothing";
  const Tensor x = placed(at::full({8}, -1, type()));
  EXPECT_ANY_THROW(kernels().capture([&] { x.cpu(); }));
  EXPECT_ANY_THROW(kernels().capture([&] { throw Error("given up"); }));
  // and the device goes on
  const DeviceStack stack{x.data_ptr(), 1, 1, 8, 8, 8};
  const auto graph =
      kernels().capture([&] { kernels().relu({.type = real(), .x = stack, .y = stack}); });
  graph->replay();
  EXPECT_EQ(x.cpu()[0].item<double>(), 0);
  EXPECT_NO_THROW(x.uniform_());  // LibTorch's generator as well
}

TEST_P(Kernels, CapturesBeginAgainAfterTheLastGraphHasGone) {
  if (!on_device()) GTEST_SKIP() << "the host captures nothing";
  const Tensor counters = longs({0});
  for (int i = 1; i <= 3; ++i) {
    const auto graph = kernels().capture(
        [&] { kernels().advance(static_cast<std::int64_t*>(counters.data_ptr()), 1); });
    graph->replay();
    EXPECT_EQ(counters.cpu()[0].item<std::int64_t>(), i);
  }
}

TEST_P(Kernels, WaitingIsForbiddenAndAllowedAgain) {
  if (!on_device()) GTEST_SKIP() << "the host does not wait";
  const Tensor x = placed(at::full({8}, 3, type()));
  kernels().forbid_waiting(true);
  EXPECT_ANY_THROW(x.cpu());
  kernels().forbid_waiting(false);
  EXPECT_EQ(x.cpu()[0].item<double>(), 3);
}

using kernels::Pack;

/// A kernel of one thread that does what `work` says with eight numbers that it shares.
template <typename Work>
struct Tile {
  static constexpr int kThreads = 1;
  struct Shared {
    alignas(16) float values[8];
  };
  Work work;

  template <typename Group>
  void operator()(Group&, std::int64_t, Shared& shared) const {
    work(static_cast<float*>(shared.values));
  }
};
template <typename Work>
void run_tile(const Work& work) {
  kernels::HostLauncher{}.tiles(1, Tile<Work>{work});
}

TEST(KernelsOnHosts, RefuseWhatEndsAKernelOnADevice) {
  alignas(16) float there[8]{};
  float* global = static_cast<float*>(there);
  const Pack<float, 4> pack{};
  EXPECT_NO_THROW(run_tile([&](float* shared) {
    kernels::store_shared(shared + 4, pack);
    kernels::store(global + 4, kernels::load<float, 4>(shared));
    kernels::begin_copy<float, 4>(shared, global, true);
  }));
  EXPECT_THROW(run_tile([&](float* shared) { kernels::store(shared, pack); }), std::logic_error);
  EXPECT_THROW(run_tile([&](float*) { kernels::store_shared(global, pack); }), std::logic_error);
  EXPECT_THROW(run_tile([&](float* shared) { kernels::store_shared(shared + 8, pack); }),
               std::logic_error);
  EXPECT_THROW(run_tile([&](float*) { kernels::store(global + 1, pack); }), std::logic_error);
  EXPECT_THROW(run_tile([&](float* shared) { kernels::load<float, 2>(shared + 1); }),
               std::logic_error);
  EXPECT_THROW(
      run_tile([&](float* shared) { kernels::begin_copy<float, 4>(shared, shared + 4, true); }),
      std::logic_error);
  EXPECT_THROW(
      run_tile([&](float* shared) { kernels::begin_copy<float, 4>(shared, global + 1, true); }),
      std::logic_error);
  EXPECT_THROW(run_tile([&](float*) { kernels::begin_copy<float, 4>(global, global + 4, true); }),
               std::logic_error);
}

TEST(KernelsOnHosts, FindNoNumbersWhereNothingIsWrittenOrWaitedFor) {
  alignas(16) float there[4]{1, 2, 3, 4};
  std::vector<float> seen;
  run_tile([&](float* shared) {
    seen.push_back(shared[1]);
    kernels::begin_copy<float, 4>(shared, static_cast<float*>(there), true);
    kernels::begin_copy<float, 4>(shared + 4, static_cast<float*>(there), false);
    kernels::wait_for_copies();
    seen.push_back(shared[1]);  // not committed
    kernels::commit_copies();
    seen.push_back(shared[1]);
    kernels::wait_for_copies();
    seen.push_back(shared[1]);
    seen.push_back(shared[5]);
  });
  ASSERT_EQ(seen.size(), 5);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(seen[i])) << i;
  EXPECT_EQ(seen[3], 2);
  EXPECT_EQ(seen[4], 0);
}

FEDHPC_KERNEL_TESTS(Kernels);
FEDHPC_KERNEL_TESTS(Gathers);

}  // namespace

}  // namespace fedhpc::test
