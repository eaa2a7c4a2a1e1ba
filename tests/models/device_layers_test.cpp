#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/models/image_layers.hpp"
#include "fedhpc/models/sample_norm.hpp"
#include "fedhpc/models/sequence_layers.hpp"

#include "fixtures/device.hpp"
#include "fixtures/device_passes.hpp"
#include "fixtures/layer_cases.hpp"

// Layers on a device against the same on the host.
namespace fedhpc::testing {
namespace {

using DeviceLayers = DeviceTest;

TEST_F(DeviceLayers, LinearAndReluAreAsOnTheHost) {
  for (const Bias bias : {Bias::Use, Bias::None}) {
    expect_equal_passes_in_all_settings(model_of(
        9, std::make_unique<Linear>("fc1", 9, 6, Tag::None, bias), std::make_unique<Relu>(6),
        std::make_unique<Linear>("fc2", 6, 5, Tag::Head, bias), std::make_unique<Relu>(5)));
  }
}

TEST_F(DeviceLayers, SampleNormIsAsOnTheHost) {
  for (const Then then : {Then::Nothing, Then::Relu}) {
    for (const std::size_t parameters : {0, 1, 2}) {
      for (const NormedParts parts : {NormedParts{2, 3, 35}, {3, 9, 1}, {1, 6, 8}}) {
        for (const bool shared : {false, true}) {
          const Shape shape{shared ? parts.channels : parts.groups * parts.channels};
          expect_equal_passes_in_all_settings(
              model_of(parts.groups * parts.values(),
                       std::make_unique<SampleNorm>("norm", parts, shape, parameters, 1e-5, then)));
        }
      }
    }
  }
}

TEST_F(DeviceLayers, BatchNormIsAsOnTheHost) {
  for (const ImageShape in : {ImageShape{3, 5, 7}, ImageShape{2, 4, 8}}) {
    for (const Then then : {Then::Nothing, Then::Relu, Then::ReluMaxPool}) {
      expect_equal_passes_in_all_settings(
          model_of(in.values(), std::make_unique<BatchNorm>("bn", in, then)));
    }
  }
}

TEST_F(DeviceLayers, PoolingIsAsOnTheHost) {
  const ImageShape in{3, 9, 7};
  for (const Window& window :
       {Window{2, 2, 0}, Window{3, 2, 1}, Window{3, 1, 0}, Window{{3, 2}, {2, 1}, {1, 0}, {1, 2}},
        Window{{2, 3}, {3, 4}, {1, 1}, 1, true}}) {
    expect_equal_passes_in_all_settings(
        model_of(in.values(), std::make_unique<MaxPool2d>(in, window)));
  }
  expect_equal_passes_in_all_settings(
      model_of(in.values(), std::make_unique<AveragePool2d>(in, Window{3, 2, 0})));
  for (const bool count_padding : {false, true}) {
    const Window window{{2, 3}, {3, 4}, {1, 1}, 1, true};
    expect_equal_passes_in_all_settings(
        model_of(in.values(), std::make_unique<AveragePool2d>(in, window, count_padding)));
  }
  expect_equal_passes_in_all_settings(model_of(in.values(), std::make_unique<MaxPool2d>(in, 4, 3)));
  expect_equal_passes_in_all_settings(
      model_of(in.values(), std::make_unique<AveragePool2d>(in, 4, 3)));
}

TEST_F(DeviceLayers, ResidualSumsAreAsOnTheHost) {
  const ImageShape in{3, 5, 4};
  for (const bool identity : {true, false}) {
    Graph graph(in.values());
    const std::size_t first =
        graph.add(std::make_unique<Conv2d>("first", in, 3, Window{3, 1, 1}, Bias::Use));
    const std::size_t body =
        graph.add(std::make_unique<Conv2d>("a", in, 3, Window{3, 1, 1}, Bias::Use));
    const std::size_t other =
        identity
            ? first
            : graph.add(std::make_unique<Conv2d>("s", in, 3, Window{1, 1, 0}, Bias::None), {first});
    graph.add(std::make_unique<Sum>(in.values()), {body, other});
    graph.add(std::make_unique<Relu>(in.values()));
    expect_equal_passes_in_all_settings(Model(std::move(graph)));
  }
}

TEST_F(DeviceLayers, RecurrentLayersAreAsOnTheHost) {
  for (const Cell cell : {Cell::Lstm, Cell::Gru}) {
    for (const Direction direction : {Direction::Forward, Direction::Reverse}) {
      for (const Bias bias : {Bias::Use, Bias::None}) {
        expect_equal_passes_in_all_settings(model_of(
            5 * 3,
            std::make_unique<Recurrent>("rnn1", cell, Recurrent::Sizes{5, 3, 6}, direction, bias),
            std::make_unique<Recurrent>("rnn2", cell, Recurrent::Sizes{5, 6, 4}, direction, bias),
            std::make_unique<Linear>("fc", 20, 3, Tag::Head)));
      }
    }
  }
}

/// Attention of linear maps of nine numbers.
Model attention_over(std::int64_t keys, const Attention::Settings& settings) {
  using Mask = Attention::Mask;
  Graph graph(9);
  const std::size_t probe = graph.add(std::make_unique<Probe>(9));
  std::vector<std::size_t> inputs;
  const auto input = [&](const char* name, std::int64_t width) {
    inputs.push_back(graph.add(std::make_unique<Linear>(name, 9, width, Tag::None), {probe}));
  };
  input("q", 2 * 4 * 3);
  input("k", 2 * keys * 3);
  input("v", 2 * keys * 2);
  if (settings.mask != Mask::None) {
    input("mask", (settings.mask == Mask::OfAllHeads ? 1 : 2) * 4 * keys);
  }
  const Attention::Sizes sizes{.heads = 2, .queries = 4, .keys = keys, .width = 3, .values = 2};
  graph.add(std::make_unique<Attention>(sizes, settings), inputs);
  graph.add(std::make_unique<Linear>("fc", 2 * 4 * 2, 3, Tag::Head));
  return Model(std::move(graph));
}

TEST_F(DeviceLayers, AttentionIsAsOnTheHost) {
  using Mask = Attention::Mask;
  for (const bool causal : {false, true}) {
    for (const Mask mask : {Mask::None, Mask::OfAllHeads, Mask::OfEachHead}) {
      for (const double dropout : {0.0, 0.4}) {
        SCOPED_TRACE(concat("causal ", causal, " mask ", int(mask), " dropout ", dropout));
        expect_equal_passes_in_all_settings(
            attention_over(5, {.scale = 0.6, .causal = causal, .mask = mask, .dropout = dropout}));
      }
    }
  }
}

/// LibTorch reads the weights of so many keys by packs, which do not divide their number.
TEST_F(DeviceLayers, AttentionOverManyKeysIsAsOnTheHost) {
  expect_equal_passes_in_all_settings(
      attention_over(1027, {.scale = 0.6, .mask = Attention::Mask::OfAllHeads}));
}

TEST_F(DeviceLayers, DescribedOnesAreAsOnTheHost) {
  std::vector<LayerCase> cases = layer_cases();
  for (const char* line : {"dropout p=0.3 inputs=1", "dropout p=0.3 channels=1 inputs=1"}) {
    cases.push_back(after_probe(line, "3,4", {line}, {}));
  }
  for (const LayerCase& one : cases) {
    SCOPED_TRACE(one.name);
    const auto model = one.model();
    PassStart start = start_of(*model);
    start.input = one.input(kPassClients, kPassBatch);
    expect_equal_passes_in_all_settings(*model, start);
  }
}

TEST_F(DeviceLayers, WhatNamesNoRowOfATableBecomesNaN) {
  const auto model =
      LayerCase{.name = "embedding",
                .lines = {"input shape=4", "embedding rows=3 columns=2 inputs=0 parameters=table"}}
          .model();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const Activations a = model->make_activations(1, 1, options, Use::Evaluation);
  a.input().copy_(at::tensor({2.0F, 3.0F, -1.0F, 0.5F}).view({1, 1, 4}));
  model->forward(at::ones({1, 6}, options), a);
  const Tensor wrong = a.logits().cpu().isnan().view({4, 2});
  EXPECT_TRUE(wrong.equal(at::tensor({0, 1, 1, 1}).to(at::kBool).view({4, 1}).expand({4, 2})));
}

}  // namespace
}  // namespace fedhpc::testing
