#include <stdexcept>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/core/log.hpp"
#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"
#include "fedhpc/models/sample_norm.hpp"

#include "fixtures/device.hpp"
#include "fixtures/device_passes.hpp"
#include "models/convolution_choice.hpp"
#include "models/device_convolution.hpp"

// Convolutions on a device, by every way, against those of the host.
namespace fedhpc::testing {
namespace {

using DeviceConvolutions = DeviceTest;

TEST_F(DeviceConvolutions, EveryWayOfAConvolutionIsAsOnTheHost) {
  for (const char* way : kConvolutionWays) {
    const ForcedConvolution forced(way);
    const bool grouped = std::string(way).rfind("grouped", 0) == 0;
    for (const std::int64_t channels : {1, 4}) {
      // For one channel in a group LibTorch has kernels on GPUs alone.
      if (grouped && channels == 1 && !is_real_device()) continue;
      for (const Window& window :
           {Window{3, 1, 1}, Window{3, 2, 1}, Window{1, 2, 0}, Window{1, 1, 0}, Window{5, 3, 2}}) {
        for (const Bias bias : {Bias::None, Bias::Use}) {
          SCOPED_TRACE(concat(way, ' ', channels, " channels, window ", window.size.width,
                              " stride ", window.stride.width));
          const ImageShape in{channels, 7, 6};
          expect_equal_passes_in_all_settings(
              model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, window, bias)));
        }
      }
    }
  }
}

TEST_F(DeviceConvolutions, EveryWayTakesAnyWindowAndGroups) {
  struct Case {
    Window window;
    std::int64_t groups;
  };
  for (const char* way : kConvolutionWays) {
    const ForcedConvolution forced(way);
    for (const Case& of : {Case{{{2, 3}, {1, 2}, {1, 0}, {2, 1}}, 1}, Case{{3, 2, 1, {1, 2}}, 2},
                           Case{{3, 1, 1}, 4}}) {
      const bool depthwise = of.groups == 4;
      // For one channel in a group LibTorch has kernels on GPUs alone.
      if (depthwise && std::string(way) != "unfolded" && !is_real_device()) continue;
      SCOPED_TRACE(concat(way, ", groups ", of.groups));
      const ImageShape in{4, 7, 6};
      for (const Bias bias : {Bias::None, Bias::Use}) {
        expect_equal_passes_in_all_settings(model_of(
            in.values(),
            std::make_unique<Conv2d>("conv", in, 8, of.window, bias, Tag::None, of.groups)));
      }
    }
  }
}

TEST_F(DeviceConvolutions, EveryWayTakesImagesByChannels) {
  const ImageShape in{4, 7, 6};
  const ImageShape less{4, 4, 3};
  for (const char* way : kConvolutionWays) {
    const ForcedConvolution forced(way);
    for (const std::int64_t groups : {1, 2}) {
      SCOPED_TRACE(concat(way, ", groups ", groups));
      const auto convolution = [groups](const char* name, const ImageShape& of, Window window) {
        return std::make_unique<Conv2d>(name, of, 4, window, Bias::Use, Tag::None, groups);
      };
      expect_equal_passes_in_all_settings(
          model_of(in.values(), convolution("a", in, {3, 1, 1}), std::make_unique<Relu>(168),
                   convolution("b", in, {3, 2, 1}), std::make_unique<Relu>(48),
                   convolution("c", less, {1, 1, 0})));
    }
  }
}

TEST_F(DeviceConvolutions, ColumnsThatAreKeptAreThoseOfTheirImages) {
  const ForcedConvolution forced("unfolded");
  const ImageShape in{2, 5, 4};
  const Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, Window{3, 1, 1}, Bias::None));
  const PassStart start = start_of(model);
  const auto gradients = [&](at::Device device) {
    const Tensor weights = start.weights.to(device);
    const Tensor arena = at::zeros_like(weights);
    const Activations whole =
        model.make_activations(kPassClients, kPassBatch, weights.options(), Use::Training);
    whole.input().copy_(start.input.to(device));
    whole.logit_gradient().copy_(start.gradient.to(device));
    // All parts go forward before one goes back.
    for (std::int64_t c = 0; c < kPassClients; ++c) {
      model.forward(weights.narrow(0, c, 1), whole.narrow(c, 1, kPassBatch));
    }
    for (std::int64_t c = 0; c < kPassClients; ++c) {
      model.backward(weights.narrow(0, c, 1), whole.narrow(c, 1, kPassBatch),
                     {.rows = arena.narrow(0, c, 1)});
    }
    return arena.cpu();
  };
  expect_near(gradients(at::kCUDA), gradients(at::kCPU), 1e-12, "gradients");
}

/// Whether the values of every node from the second on lie by channels.
std::vector<bool> by_channels(const Model& model, at::Device device, Use use) {
  const Activations all = model.make_activations(
      kPassClients, kPassBatch, at::TensorOptions().dtype(at::kFloat).device(device), use);
  std::vector<bool> lie;
  for (std::size_t n = 1; n < all.values.size(); ++n) {
    lie.push_back(all.values[n].dim() == 4);
    if (use == Use::Training) {
      EXPECT_EQ(all.gradients[n].strides(), all.values[n].strides());
    }
  }
  return lie;
}

TEST_F(DeviceConvolutions, ImagesLieByChannelsBetweenLayersThatTakeThemSo) {
  const ImageShape in{3, 8, 8};
  const ImageShape half{3, 4, 4};
  const auto convolution = [](const char* name, const ImageShape& of) {
    return std::make_unique<Conv2d>(name, of, 3, Window{3, 1, 1}, Bias::Use);
  };
  Graph graph(in.values());
  graph.add(convolution("a", in));
  const std::size_t norm = graph.add(std::make_unique<BatchNorm>("bn", in, Then::ReluMaxPool));
  graph.add(convolution("b", half));
  graph.add(std::make_unique<Sum>(half.values()), {graph.last(), norm});
  graph.add(std::make_unique<Relu>(half.values()));
  graph.add(std::make_unique<MaxPool2d>(half, Window{2, 2, 0}));
  graph.add(std::make_unique<Linear>("middle", 12, 48, Tag::None));
  graph.add(std::make_unique<Relu>(48));
  graph.add(convolution("c", half));
  graph.add(std::make_unique<Relu>(48));
  graph.add(std::make_unique<Linear>("fc", 48, 3, Tag::Head));
  const Model model(std::move(graph));
  const std::vector<bool> lie{true,  true,  true,  true,  true, false,
                              false, false, false, false, false};
  for (const Use use : {Use::Training, Use::Evaluation}) {
    EXPECT_EQ(by_channels(model, at::kCUDA, use), lie);
    EXPECT_EQ(by_channels(model, at::kCPU, use), std::vector<bool>(lie.size(), false));
  }
  const PassStart start = start_of(model);
  for (const PassSetting& setting : pass_settings()) {
    SCOPED_TRACE(title(setting));
    // Of batch norm over few values float32's rounding makes much.
    if (setting.type == at::kDouble) expect_equal_passes(model, start, setting, 1e-9);
  }
}

TEST_F(DeviceConvolutions, FactorsHaveThePrecisionOfTheHost) {
  const ImageShape in{4, 7, 6};
  const Model linear = model_of(40, std::make_unique<Linear>("fc", 40, 30, Tag::None));
  const Model convolution =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 5, Window{3, 1, 1}, Bias::Use));
  const PassStart of_linear = start_of(linear);
  const PassStart of_convolution = start_of(convolution);
  for (const Precision precision : {Precision::Tf32, Precision::Bf16}) {
    // A GPU takes TF32 by other rounding; LibTorch's convolutions on a host take none.
    const double coarse = precision == Precision::Tf32 ? 2e-3 : 1e-2;
    const PassSetting setting{.type = at::kFloat, .arithmetic = {precision}};
    const double exact = is_real_device() ? coarse : 1e-5;
    device_kernels<MathKernels>().use_precision(precision);
    expect_equal_passes(linear, of_linear, setting, exact);
    for (const char* way : kConvolutionWays) {
      const ForcedConvolution forced(way);
      SCOPED_TRACE(way);
      const bool own = std::string(way) == "unfolded" || precision == Precision::Bf16;
      expect_equal_passes(convolution, of_convolution, setting, own ? exact : coarse);
    }
    device_kernels<MathKernels>().use_precision(Precision::Fp32);
    // And it is none of full precision.
    const PassSetting full{.type = at::kFloat};
    const Tensor logits = run_pass(linear, of_linear, full, at::kCPU).logits;
    const Tensor shorter = run_pass(linear, of_linear, setting, at::kCPU).logits;
    EXPECT_GT(logits.sub(shorter).norm().item<double>(), 1e-5 * logits.norm().item<double>());
  }
}

TEST_F(DeviceConvolutions, ConvolutionsOfAShapeAreTriedOnce) {
  const ImageShape in{2, 11, 6};
  const Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, Window{3, 1, 1}, Bias::Use));
  const PassStart start = start_of(model);
  const auto waits_of = [&](const PassSetting& setting) {
    const std::int64_t before = waits_for_device();
    expect_equal_passes(model, start, setting);
    return waits_for_device() - before;
  };
  const PassSetting setting{.sink = PassSink::Descent};
  PassSetting in_order = setting;
  in_order.arithmetic.summation = Summation::Reproducible;
  const std::int64_t untried = waits_of(in_order);  // copies of this test alone
  const std::int64_t first = waits_of(setting);
  EXPECT_TRUE(is_real_device() || first > untried) << first;
  EXPECT_EQ(waits_of(setting), untried);
}

TEST_F(DeviceConvolutions, BatchesTooLargeForAProductInOrderAreRefusedInWords) {
  const auto options = at::TensorOptions(at::kFloat).device(current_cuda_device());
  const ImageShape shape{1, 3, 3};
  const Tensor weights = at::ones({1, 1}, options);
  const Tensor x = at::ones({1, 1, 9}, options);
  const auto forward = [&](std::int64_t channel_stride, Summation summation) {
    // A sample of a batch, by channels.
    const Tensor y = at::empty({9}, options).as_strided({1, 1, 1, 9}, {9, 9, channel_stride, 1});
    const Saved nothing;
    const Pass pass{weights, nothing, Use::Evaluation, {.summation = summation}};
    DeviceConvolution(shape, shape, {1, 1, 0}, 1, pass).forward(weights, {}, x, y);
    return y.sum().item<float>();
  };
  EXPECT_EQ(forward(DeviceProduct::kTooLong - 1, Summation::Reproducible), 9);
  EXPECT_EQ(forward(DeviceProduct::kTooLong, Summation::Fast), 9);
  try {
    forward(DeviceProduct::kTooLong, Summation::Reproducible);
    FAIL() << "a row too long";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("use a smaller train.batch_size"), std::string::npos);
  }
}

TEST_F(DeviceConvolutions, WaysThatFailOrAreSlowAreToldAndNotTaken) {
  ConvolutionTrials trials;
  const ConvolutionCase of{.direction = ConvolutionDirection::Forward,
                           .in_channels = 2,
                           .in_height = 5,
                           .in_width = 5,
                           .out_channels = 3,
                           .window = {3, 1, 1},
                           .groups = 1,
                           .clients = 3,
                           .batch = 4,
                           .type = DType::Float32,
                           .precision = Precision::Fp32};
  Tensor values = at::ones({64}, at::TensorOptions(at::kFloat).device(current_cuda_device()));
  int runs = 0;
  const auto run = [&](ConvolutionWay way) {
    ++runs;
    if (way == ConvolutionWay::Unfolded) throw std::runtime_error("beyond memory\nand where");
    const int operations = way == ConvolutionWay::LoopChannelsLast ? 1 : 2000;
    for (int i = 0; i < operations; ++i) values.mul_(1);
  };
  run_log().show(LogLevel::Debug);
  ::testing::internal::CaptureStderr();
  const ConvolutionWay way = trials.fastest(of, current_cuda_device(), run);
  const std::string told = ::testing::internal::GetCapturedStderr();
  run_log().show(LogLevel::Note);
  EXPECT_EQ(way, ConvolutionWay::LoopChannelsLast) << told;
  EXPECT_NE(told.find("unfolded failed (beyond memory), loop "), std::string::npos) << told;
  EXPECT_NE(told.find(" ms: loop_channels_last\n"), std::string::npos) << told;
  const int before = runs;
  ConvolutionCase ragged = of;
  ragged.batch = 3;
  EXPECT_EQ(trials.fastest(ragged, current_cuda_device(), run), way);
  EXPECT_EQ(runs, before) << "batches up to the same power of two share their trials";
}

TEST_F(DeviceConvolutions, KeepColumnsWhereAModelHasRoomForThem) {
  const ForcedConvolution forced("unfolded");
  const auto options = at::TensorOptions(at::kFloat).device(current_cuda_device());
  const ImageShape in{2, 5, 5};
  Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, Window{3, 1, 1}, Bias::None));
  const Tensor weights = start_of(model).weights.to(options);
  const Shape shape{kPassClients, 2 * 9, kPassBatch * 25};
  const std::int64_t bytes = c10::multiply_integers(shape) * std::int64_t{sizeof(float)};
  for (const std::int64_t most : {bytes, bytes - 1}) {
    model.keep_columns(most);
    const Activations activations =
        model.make_activations(kPassClients, kPassBatch, options, Use::Training);
    model.forward(weights, activations);
    const auto& kept = *static_cast<const KeptColumns*>(activations.saved[2].of_part.get());
    EXPECT_EQ(kept.of(activations.values[1], shape).defined(), most == bytes);
  }
}

TEST_F(DeviceConvolutions, PassesCanBeCaptured) {
  const ImageShape in{3, 8, 8};
  const Model model = model_of(
      in.values(), std::make_unique<Conv2d>("conv", in, 4, Window{3, 1, 1}, Bias::Use),
      std::make_unique<BatchNorm>("bn", ImageShape{4, 8, 8}, Then::Relu),
      std::make_unique<MaxPool2d>(ImageShape{4, 8, 8}, Window{2, 2, 0}),
      std::make_unique<SampleNorm>("gn", NormedParts{2, 2, 16}, Shape{4}, 2, 1e-5, Then::Relu),
      std::make_unique<AveragePool2d>(ImageShape{4, 4, 4}, 1, 1),
      std::make_unique<Linear>("fc", 4, 3, Tag::Head));
  const PassStart start = start_of(model);
  const auto expect_same = [&](const char* way, at::ScalarType type) {
    SCOPED_TRACE(way);
    const ForcedConvolution forced(way);
    const auto descend = [&](at::Device device, bool captured) {
      const auto options = at::TensorOptions().dtype(type).device(device);
      const Tensor weights = start.weights.to(type).clone().to(device);
      const Activations activations =
          model.make_activations(kPassClients, kPassBatch, options, Use::Training);
      activations.input().copy_(start.input.to(options));
      const Tensor gradient = start.gradient.to(options);
      const auto step = [&] {
        model.forward(weights, activations);
        activations.logit_gradient().copy_(gradient);
        model.backward(weights, activations, {.rows = weights, .scale = -0.1, .keep = 1});
      };
      step();
      if (captured) {
        const auto graph = device_kernels().capture(step);
        for (int i = 0; i < 3; ++i) graph->replay();
        return weights.cpu();
      }
      for (int i = 0; i < 3; ++i) step();
      return weights.cpu();
    };
    expect_near(descend(at::kCUDA, true), descend(at::kCPU, false),
                type == at::kDouble ? 1e-11 : 1e-4, "after four steps");
  };
  for (const char* way : kConvolutionWays) {
    expect_same(way, at::kDouble);
    expect_same(way, at::kFloat);
  }
}

}  // namespace
}  // namespace fedhpc::testing
