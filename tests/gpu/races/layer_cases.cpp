#include "gpu/races/cases.hpp"

namespace fedhpc::test {

namespace {

constexpr std::int64_t kClients = 2;
constexpr std::int64_t kBatch = 5;

/// Images sample after sample, or by channels.
DeviceStack images(Memory& memory, const DeviceImage& of, bool by_channels) {
  const std::int64_t places = of.height * of.width;
  if (!by_channels) return memory.stack(kClients, kBatch, of.channels * places);
  const DeviceStack planes = memory.stack(kClients, of.channels, kBatch * places);
  return {.data = planes.data,
          .clients = kClients,
          .batch = kBatch,
          .width = of.channels * places,
          .client_stride = planes.client_stride,
          .sample_stride = places,
          .channel_stride = planes.sample_stride};
}

void activations(AllKernels& kernels, Memory& memory) {
  const DType type = memory.type();
  for (const std::int64_t places : {1, 9, 256}) {
    for (const bool by_channels : {false, true}) {
      const DeviceImage image{3, 1, places};
      const DeviceStack x = images(memory, image, by_channels);
      kernels.relu({.type = type, .x = x, .y = x});
      const DeviceStack dy = images(memory, image, by_channels);
      kernels.relu_gradient({.type = type, .y = x, .dy = dy, .dx = dy});
      const DeviceColumns bias = memory.columns(kClients, 3);
      kernels.add_bias({.type = type, .y = x, .bias = bias, .places = places, .relu = true});
      kernels.bias_gradient({.type = type,
                             .dy = dy,
                             .places = places,
                             .sink = {.out = bias, .scale = -.1, .keep = 1}});
      kernels.bias_gradient({.type = type,
                             .dy = dy,
                             .places = places,
                             .sink = {.out = bias, .scale = -.1, .keep = 1},
                             .rectified = x});
    }
  }
}

void windows(AllKernels& kernels, Memory& memory) {
  const DType type = memory.type();
  const DeviceImage in{2, 9, 8};
  for (const std::int64_t dilation : {1, 2}) {
    const Window window{.size = 3, .stride = 2, .padding = 1, .dilation = dilation};
    const DeviceImage out{2, window.down().outputs(in.height), window.across().outputs(in.width)};
    const DeviceUnfold unfold{
        .type = type,
        .x = images(memory, in, false),
        .in = in,
        .out = out,
        .window = window,
        .columns = memory.numbers(kClients * kBatch * out.channels * out.height * out.width * 9)};
    kernels.unfold(unfold);
    kernels.fold(unfold);
    const std::int64_t places = out.height * out.width;
    const DeviceStack y = images(memory, out, true);
    DeviceStack found = y;
    found.data = memory.keep(std::vector<std::int32_t>(
        static_cast<std::size_t>(kClients * y.client_stride + 2 * kBatch * places)));
    const DeviceMaxPool pool{.type = type,
                             .x = images(memory, in, true),
                             .y = y,
                             .places = found,
                             .in = in,
                             .out = out,
                             .window = window};
    kernels.max_pool(pool);
    kernels.max_pool_gradient(pool);
  }
  for (const bool by_channels : {false, true}) {
    const DeviceStack stack = images(memory, in, by_channels);
    void* turned = memory.numbers(kClients * kBatch * 2 * 72);
    kernels.turn_to({.type = type, .stack = stack, .places = 72, .channel_major = turned});
    if (by_channels) continue;
    kernels.turn_from({.type = type,
                       .stack = stack,
                       .places = 72,
                       .channel_major = turned,
                       .bias = memory.columns(kClients, 2)});
  }
}

void parts(AllKernels& kernels, Memory& memory) {
  const DType type = memory.type();
  const DeviceImage in{2, 7, 6};
  const DeviceImage out{2, 3, 2};
  const DevicePooled covered{
      .rows = memory.keep(std::vector<Covered>{{0, 3, 3}, {2, 5, 3}, {4, 7, 3}}),
      .columns = memory.keep(std::vector<Covered>{{0, 3, 5}, {3, 6, 5}})};
  const DeviceStack y = images(memory, out, false);
  DeviceStack found = y;
  found.data =
      memory.keep(std::vector<std::int32_t>(static_cast<std::size_t>(kClients * y.client_stride)));
  const DeviceMaxPool pool{.type = type,
                           .x = images(memory, in, false),
                           .y = y,
                           .places = found,
                           .in = in,
                           .out = out,
                           .parts = covered};
  kernels.max_pool(pool);
  kernels.max_pool_gradient(pool);
  const DeviceAveragePool average{
      .type = type, .x = images(memory, in, true), .y = y, .in = in, .out = out, .parts = covered};
  kernels.average_pool(average);
  kernels.average_pool_gradient(average);
}

void batch_norms(AllKernels& kernels, Memory& memory) {
  for (const Then then : {Then::Nothing, Then::Relu, Then::ReluMaxPool}) {
    for (const DeviceImage& in : {DeviceImage{3, 15, 13}, DeviceImage{2, 16, 8}}) {
      for (const bool by_channels : {false, true}) {
        const DeviceImage half{in.channels, in.height / 2, in.width / 2};
        const DeviceImage& out = then == Then::ReluMaxPool ? half : in;
        const DeviceColumns parameters = memory.columns(kClients, 4 * in.channels);
        DeviceBatchNorm norm{.type = memory.type(),
                             .then = then,
                             .training = true,
                             .in = in,
                             .epsilon = 1e-5,
                             .momentum = 0.1,
                             .x = images(memory, in, by_channels),
                             .y = images(memory, out, !by_channels),
                             .parameters = parameters,
                             .saved = memory.doubles(kClients * 2 * in.channels)};
        kernels.batch_norm(norm);
        norm.y = images(memory, out, by_channels);
        kernels.batch_norm_gradient({.norm = norm,
                                     .dx = images(memory, in, by_channels),
                                     .sink = {.out = parameters, .scale = -.1, .keep = 1}});
      }
    }
  }
}

/// Forward and back, with the parameters as the sinks.
void sample_norm(AllKernels& kernels, Memory& memory, std::int64_t groups, std::int64_t channels,
                 std::int64_t places, bool shared) {
  const DeviceImage of{groups * channels, 1, places};
  const std::int64_t width = shared ? channels : groups * channels;
  const DeviceColumns weight = memory.columns(kClients, width);
  const DeviceColumns bias = memory.columns(kClients, width);
  const auto numbers = [&] {
    return DeviceStack{memory.doubles(kClients * kBatch * groups),
                       kClients,
                       kBatch,
                       groups,
                       kBatch * groups,
                       groups};
  };
  DeviceSampleNorm norm{.type = memory.type(),
                        .relu = true,
                        .groups = groups,
                        .channels = channels,
                        .places = places,
                        .shared = shared,
                        .epsilon = 1e-5,
                        .x = images(memory, of, false),
                        .y = images(memory, of, false),
                        .weight = weight,
                        .bias = bias,
                        .mean = numbers(),
                        .inverse = numbers()};
  kernels.sample_norm(norm);
  norm.y = images(memory, of, false);
  kernels.sample_norm_gradient({.norm = norm,
                                .dx = images(memory, of, false),
                                .weight = {weight, -.1, 1},
                                .bias = {bias, -.1, 1}});
}

void norms_of_images(AllKernels& kernels, Memory& memory) {
  sample_norm(kernels, memory, 2, 3, 350, false);
  sample_norm(kernels, memory, 2, 3, 512, true);
}

void norms_of_values(AllKernels& kernels, Memory& memory) {
  sample_norm(kernels, memory, 3, 45, 1, false);
  sample_norm(kernels, memory, 4, 37, 1, true);
}

void batches(AllKernels& kernels, Memory& memory) {
  constexpr std::int64_t kSamples = 6;
  constexpr std::int64_t kWidth = 3 * 8 * 8;
  std::vector<DevicePick> picks;
  for (std::int32_t i = 0; i < kClients * kBatch; ++i) {
    picks.push_back({i * 7 % kSamples, i * 5 % 9, i * 4 % 9, i % 2, 0});
  }
  picks[3].row = -1;
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < kSamples * kWidth; ++i) {
    pixels.push_back(static_cast<std::uint8_t>(i * 37));
  }
  DeviceGather gather{.type = memory.type(),
                      .pixels = true,
                      .source = memory.keep(pixels),
                      .source_targets = memory.keep(std::vector<std::int32_t>(kSamples * 2, 5)),
                      .picks = memory.keep(picks),
                      .pick_clients = kClients,
                      .pick_batch = kBatch,
                      .table = memory.doubles(256),
                      .channels = 3,
                      .height = 8,
                      .image_width = 8,
                      .inputs = memory.stack(kClients, kBatch, kWidth),
                      .targets = memory.keep(std::vector<std::int32_t>(kClients * kBatch * 2)),
                      .target_words = 2,
                      .target_stride = kBatch * 2};
  kernels.gather(gather);
  gather.pixels = false;
  gather.source = memory.numbers(kSamples * kWidth);
  gather.inputs = memory.stack(kClients, kBatch, kWidth);
  kernels.gather(gather);
}

}  // namespace

std::vector<Case> layer_cases() {
  return {{"activations", activations},
          {"windows", windows},
          {"parts", parts},
          {"batch_norms", batch_norms},
          {"norms_of_images", norms_of_images},
          {"norms_of_values", norms_of_values},
          {"batches", batches}};
}

}  // namespace fedhpc::test
