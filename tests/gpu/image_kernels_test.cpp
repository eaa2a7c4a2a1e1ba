// Kernels of image models against LibTorch's operators and plain sums in float64.

#include "gpu/kernel_case.hpp"

namespace fedhpc::test {

namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 4;

class ImageKernels : public KernelTest {
 protected:
  Placed place(const Tensor& values, Gaps gaps = Gaps::None, std::int64_t channels = 0) const {
    return {values, gaps, place_of(on_device()), channels};
  }
  Tensor placed_parts(const std::vector<Covered>& parts) const {
    std::vector<std::int64_t> numbers;
    for (const Covered& one : parts)
      numbers.insert(numbers.end(), {one.first, one.last, one.count});
    return longs(numbers);
  }
  static DevicePooled pooled(const Tensor& rows, const Tensor& columns) {
    return {static_cast<const Covered*>(rows.data_ptr()),
            static_cast<const Covered*>(columns.data_ptr())};
  }
};

struct WindowCase {
  DeviceImage in;
  Window window;

  DeviceImage out() const {
    return {in.channels, window.down().outputs(in.height), window.across().outputs(in.width)};
  }
};
const std::vector<WindowCase> kWindows{{{2, 8, 8}, {3, 1, 1}},
                                       {{1, 7, 5}, {3, 2, 1}},
                                       {{3, 6, 9}, {2, 2, 0}},
                                       {{2, 5, 5}, {5, 1, 2}},
                                       {{2, 9, 8}, {1, 2, 0}},
                                       {{1, 8, 8}, {2, 3, 0}},
                                       {{4, 4, 4}, {4, 4, 0}},
                                       // sides of their own, and dilation
                                       {{2, 1, 9}, {{1, 3}, 2, {0, 1}}},
                                       {{3, 8, 6}, {{2, 3}, {1, 2}, {1, 0}}},
                                       {{2, 9, 8}, {3, 1, 1, 2}},
                                       {{2, 9, 12}, {{2, 3}, {2, 1}, {1, 2}, {3, 2}}}};

/// How images lie: with gaps between samples, or by channels with gaps between these.
struct Lie {
  Gaps gaps;
  bool by_channels;

  std::int64_t channels(const DeviceImage& of) const { return by_channels ? of.channels : 0; }
};
const std::vector<Lie> kAllLies{{Gaps::None, false}, {Gaps::Even, false}, {Gaps::Odd, false},
                                {Gaps::None, true},  {Gaps::Even, true},  {Gaps::Odd, true}};

std::int64_t values_of(const DeviceImage& image) {
  return image.channels * image.height * image.width;
}

/// [C, B, values] as [C B, channels, height, width]
Tensor as_images(const Tensor& stack, const DeviceImage& image) {
  return stack.reshape({-1, image.channels, image.height, image.width});
}

TEST_P(ImageKernels, UnfoldedAndFoldedLikeLibTorchs) {
  for (const WindowCase& of : kWindows) {
    for (const Lie lie : kAllLies) {
      const DeviceImage out = of.out();
      const std::int64_t places = out.height * out.width;
      const std::int64_t inner = of.in.channels * of.window.size.product();
      const auto size = of.window.size.pair();
      const auto padding = of.window.padding.pair();
      const auto stride = of.window.stride.pair();
      const auto dilation = of.window.dilation.pair();
      // [C, B, inner, places] and ours, [C, inner, B, places]
      const Tensor images = random({kClients, kBatch, values_of(of.in)});
      const Tensor known = at::im2col(as_images(images, of.in), size, dilation, padding, stride)
                               .view({kClients, kBatch, inner, places})
                               .transpose(1, 2);
      const Placed x = place(images, lie.gaps, lie.channels(of.in));
      const Tensor columns = placed(at::full({kClients, inner, kBatch, places}, kNan, type()));
      DeviceUnfold unfold{.type = real(),
                          .x = x.stack(),
                          .in = of.in,
                          .out = out,
                          .window = of.window,
                          .columns = columns.data_ptr()};
      kernels().unfold(unfold);
      EXPECT_TRUE(columns.cpu().equal(known));

      const Tensor any = random({kClients, inner, kBatch, places});
      const Tensor sums =
          at::col2im(any.transpose(1, 2).reshape({kClients * kBatch, inner, places}),
                     {of.in.height, of.in.width}, size, dilation, padding, stride)
              .reshape({kClients, kBatch, values_of(of.in)});
      const Tensor from = placed(any);
      unfold.columns = from.data_ptr();
      kernels().fold(unfold);
      expect_close(x.values(), sums);
    }
  }
}

TEST_P(ImageKernels, Turns) {
  for (const std::int64_t places : {1, 6, 16}) {
    for (const Gaps gaps : kAllGaps) {
      const std::int64_t channels = 5;
      const Tensor values = random({kClients, kBatch, channels * places});
      const Tensor known =
          values.view({kClients, kBatch, channels, places}).transpose(1, 2).contiguous();
      const Placed stack = place(values, gaps);
      const Tensor turned = placed(at::full_like(known, kNan));
      DeviceTurn turn{.type = real(),
                      .stack = stack.stack(),
                      .places = places,
                      .channel_major = turned.data_ptr()};
      kernels().turn_to(turn);
      EXPECT_TRUE(turned.cpu().equal(known));
      const Placed back = place(at::full_like(values, kNan), gaps);
      turn.stack = back.stack();
      kernels().turn_from(turn);
      EXPECT_TRUE(back.values().equal(values));
      const Tensor bias = random({kClients, channels});
      const Placed shift = place(bias, gaps);
      turn.bias = shift.columns();
      kernels().turn_from(turn);
      expect_close(back.values(), (values.view({kClients, kBatch, channels, places}) +
                                   bias.view({kClients, 1, channels, 1}))
                                      .view_as(values));
    }
  }
}

TEST_P(ImageKernels, MaxPoolingTakesTheFirstOfEqualOnesAndNan) {
  for (const WindowCase& of : kWindows) {
    const WindowSide down = of.window.down();
    const WindowSide across = of.window.across();
    if (2 * down.padding > down.size || 2 * across.padding > across.size) continue;
    for (const Lie lie : kAllLies) {
      const DeviceImage out = of.out();
      const auto place_images = [&](const Tensor& values) {
        return place(values, lie.gaps, lie.channels(of.in));
      };
      // Few different values: ties.
      Tensor images = at::randint(4, {kClients, kBatch, values_of(of.in)}, at::kLong).to(type());
      images[1][1][3] = kNan;
      const Tensor input = as_images(images, of.in);
      const auto size = of.window.size.pair();
      const auto padding = of.window.padding.pair();
      const auto stride = of.window.stride.pair();
      const auto dilation = of.window.dilation.pair();
      const auto [known, known_places] =
          at::max_pool2d_with_indices(input, size, stride, padding, dilation);
      const Placed x = place_images(images);
      const std::vector<std::int64_t> shape{kClients, kBatch, values_of(out)};
      const Placed y = place_images(at::zeros(shape, type()));
      const Placed places = place(at::zeros(shape, at::kInt), lie.gaps);
      DeviceMaxPool pool{.type = real(),
                         .x = x.stack(),
                         .y = y.stack(),
                         .places = places.stack(),
                         .in = of.in,
                         .out = out,
                         .window = of.window};
      kernels().max_pool(pool);
      expect_close(y.values(), known.reshape(shape));
      EXPECT_TRUE(places.values().to(at::kLong).equal(known_places.reshape(shape)));
      DeviceMaxPool without = pool;
      const Placed again = place_images(at::zeros(shape, type()));
      without.y = again.stack();
      without.places = {};
      kernels().max_pool(without);
      expect_close(again.values(), y.values());

      const Tensor gradient = random(shape);
      const Tensor back =
          at::max_pool2d_with_indices_backward(as_images(gradient, out), input, size, stride,
                                               padding, dilation, false, known_places)
              .reshape(images.sizes());
      const Placed dy = place_images(gradient);
      const Placed dx = place_images(at::full_like(images, kNan));
      pool.x = dx.stack();
      pool.y = dy.stack();
      kernels().max_pool_gradient(pool);
      expect_close(dx.values(), back);
    }
  }
}

TEST_P(ImageKernels, MaxPoolingByParts) {
  const DeviceImage in{2, 7, 6};
  for (const DeviceImage out : {DeviceImage{2, 3, 4}, DeviceImage{2, 1, 1}, DeviceImage{2, 9, 6}}) {
    for (const Gaps gaps : kAllGaps) {
      const Tensor images = at::randint(4, {kClients, kBatch, values_of(in)}, at::kLong).to(type());
      const Tensor input = as_images(images, in);
      const auto [known, known_places] = at::adaptive_max_pool2d(input, {out.height, out.width});
      const std::vector<std::int64_t> shape{kClients, kBatch, values_of(out)};
      const Tensor rows = placed_parts(adaptive_parts(in.height, out.height));
      const Tensor columns = placed_parts(adaptive_parts(in.width, out.width));
      const Placed x = place(images, gaps);
      const Placed y = place(at::zeros(shape, type()), gaps);
      const Placed places = place(at::zeros(shape, at::kInt), gaps);
      DeviceMaxPool pool{.type = real(),
                         .x = x.stack(),
                         .y = y.stack(),
                         .places = places.stack(),
                         .in = in,
                         .out = out,
                         .parts = pooled(rows, columns)};
      kernels().max_pool(pool);
      expect_close(y.values(), known.reshape(shape));
      EXPECT_TRUE(places.values().to(at::kLong).equal(known_places.reshape(shape)));
      const Tensor gradient = random(shape);
      const Placed dy = place(gradient, gaps);
      const Placed dx = place(at::full_like(images, kNan), gaps);
      pool.x = dx.stack();
      pool.y = dy.stack();
      kernels().max_pool_gradient(pool);
      expect_close(dx.values(),
                   at::adaptive_max_pool2d_backward(as_images(gradient, out), input, known_places)
                       .reshape(images.sizes()));
    }
  }
}

TEST_P(ImageKernels, AveragePoolingByRectangles) {
  const DeviceImage in{2, 7, 6};
  const std::vector<Covered> rows{{0, 3, 3}, {2, 5, 3}, {4, 7, 3}};  // adaptive: they overlap
  const std::vector<Covered> columns{{0, 3, 5}, {3, 6, 5}};          // with padding that counts
  const std::int64_t outputs = in.channels * 6;
  for (const Lie lie : kAllLies) {
    const auto place_images = [&](const Tensor& values) {
      return place(values, lie.gaps, lie.channels(in));
    };
    const Tensor images = random({kClients, kBatch, values_of(in)});
    const Tensor gradient = random({kClients, kBatch, outputs});
    const Tensor input = images.view({kClients, kBatch, 2, 7, 6});
    Tensor known = at::zeros({kClients, kBatch, 2, 3, 2}, type());
    Tensor back = at::zeros_like(input);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 2; ++j) {
        const auto part = [&](const Tensor& of) {
          return of.narrow(3, rows[i].first, 3).narrow(4, columns[j].first, 3);
        };
        known.select(3, i).select(3, j).copy_(part(input).sum({3, 4}) / 15);
        part(back).add_(gradient.view_as(known).narrow(3, i, 1).narrow(4, j, 1) / 15);
      }
    }
    const Placed x = place_images(images);
    const Placed y = place_images(at::full_like(gradient, kNan));
    const Tensor device_rows = placed_parts(rows);
    const Tensor device_columns = placed_parts(columns);
    DeviceAveragePool pool{.type = real(),
                           .x = x.stack(),
                           .y = y.stack(),
                           .in = in,
                           .out = {2, 3, 2},
                           .parts = pooled(device_rows, device_columns)};
    kernels().average_pool(pool);
    expect_close(y.values(), known.view_as(gradient));
    const Placed dy = place_images(gradient);
    const Placed dx = place_images(at::full_like(images, kNan));
    pool.x = dx.stack();
    pool.y = dy.stack();
    kernels().average_pool_gradient(pool);
    expect_close(dx.values(), back.view_as(images));
  }
}

/// Batch norm and what follows in float64, forward and back.
struct NormReference {
  DeviceImage in;
  Then then;
  double epsilon;
  Tensor x;      // [C, B, channels, height, width]
  Tensor gamma;  // [C, 1, channels, 1, 1]
  Tensor beta;
  Tensor mean;
  Tensor inverse;

  Tensor normalised() const { return (x - mean) * inverse; }
  Tensor affine() const { return gamma * normalised() + beta; }

  /// [C B, channels, height, width]
  Tensor pooling_input() const { return as_images(affine(), in).relu(); }

  Tensor y() const {
    const Tensor z = affine();
    if (then == Then::Nothing) return z;
    if (then == Then::Relu) return at::where(z.lt(0), at::zeros_like(z), z);
    return std::get<0>(at::max_pool2d_with_indices(pooling_input(), {2, 2}, {2, 2}))
        .reshape({x.size(0), x.size(1), -1});
  }

  /// False for numbers of y() of which rounding decides whether they are above 0.
  Tensor is_clear() const {
    Tensor z = affine();
    if (then == Then::ReluMaxPool) {
      z = std::get<0>(at::max_pool2d_with_indices(as_images(z, in), {2, 2}, {2, 2}));
    }
    return z.abs().gt(1e-3).reshape({x.size(0), x.size(1), -1});
  }

  /// The gradient of affine() from that of y().
  Tensor through(const Tensor& dy) const {
    const Tensor z = affine();
    if (then == Then::Nothing) return dy.view_as(z);
    if (then == Then::Relu) return at::where(z.gt(0), dy.view_as(z), at::zeros_like(z));
    const Tensor input = as_images(z, in);
    const auto places = std::get<1>(at::max_pool2d_with_indices(input, {2, 2}, {2, 2}));
    const Tensor spread = at::max_pool2d_with_indices_backward(
                              dy.reshape({-1, in.channels, in.height / 2, in.width / 2}), input,
                              {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, places)
                              .view_as(z);
    return at::where(z.gt(0), spread, at::zeros_like(z));
  }
};

TEST_P(ImageKernels, BatchNormAndWhatFollows) {
  constexpr double kEpsilon = 1e-5;
  constexpr double kMomentum = .1;
  const std::vector<std::int64_t> per_channel{1, 3, 4};
  for (const DeviceImage in :
       {DeviceImage{3, 4, 4}, DeviceImage{2, 5, 7}, DeviceImage{1, 16, 16}}) {
    for (const Then then : {Then::Nothing, Then::Relu, Then::ReluMaxPool}) {
      for (const Lie lie : kAllLies) {
        const auto place_images = [&](const Tensor& values) {
          return place(values, lie.gaps, lie.channels(in));
        };
        for (const bool training : {true, false}) {
          const std::int64_t k = in.channels;
          const bool pools = then == Then::ReluMaxPool;
          const std::int64_t outputs = pools ? k * (in.height / 2) * (in.width / 2) : values_of(in);
          // A mean far from 0: the variance must not be lost to cancellation.
          const Tensor images = 50 + random({kClients, kBatch, values_of(in)});
          Tensor parameters = random({kClients, 4 * k});
          parameters.narrow(1, 3 * k, k).abs_().add_(.5);
          parameters.narrow(1, 2 * k, k).add_(50);
          const auto vector = [&](std::int64_t which) {
            return parameters.narrow(1, which * k, k)
                .to(at::kDouble)
                .reshape({kClients, 1, k, 1, 1});
          };
          NormReference known{
              .in = in,
              .then = then,
              .epsilon = kEpsilon,
              .x = images.to(at::kDouble).reshape({kClients, kBatch, k, in.height, in.width}),
              .gamma = vector(0),
              .beta = vector(1),
              .mean = vector(2),
              .inverse = {}};
          Tensor variance = vector(3);
          const auto n = static_cast<double>(kBatch * in.height * in.width);
          Tensor after = parameters.to(at::kDouble).clone();
          if (training) {
            known.mean = known.x.mean(per_channel, /*keepdim=*/true);
            variance = (known.x - known.mean).square().mean(per_channel, true);
            after.narrow(1, 2 * k, k)
                .mul_(1 - kMomentum)
                .add_(known.mean.view({kClients, k}), kMomentum);
            after.narrow(1, 3 * k, k)
                .mul_(1 - kMomentum)
                .add_(variance.view({kClients, k}), kMomentum * n / (n - 1));
          }
          known.inverse = 1 / (variance + kEpsilon).sqrt();

          const Placed x = place_images(images);
          const Placed y = place_images(at::full({kClients, kBatch, outputs}, kNan, type()));
          const Placed row = place(parameters, lie.gaps);
          const Tensor saved = placed(at::full({kClients, 2, k}, kNan, at::kDouble));
          DeviceBatchNorm norm{
              .type = real(),
              .then = then,
              .training = training,
              .in = in,
              .epsilon = kEpsilon,
              .momentum = kMomentum,
              .x = x.stack(),
              .y = y.stack(),
              .parameters = row.columns(),
              .saved = training ? static_cast<double*>(saved.data_ptr()) : nullptr};
          kernels().batch_norm(norm);
          expect_close(y.values(), known.y().reshape({kClients, kBatch, outputs}), 20);
          expect_close(row.values(), after, 5);
          if (!training) continue;

          expect_close(saved.cpu().select(1, 0), known.mean.view({kClients, k}));
          expect_close(saved.cpu().select(1, 1), known.inverse.view({kClients, k}));
          const Tensor gradient = random({kClients, kBatch, outputs}).mul(known.is_clear());
          const Tensor g = known.through(gradient.to(at::kDouble));
          const Tensor dbeta = g.sum(per_channel, true);
          const Tensor dgamma = (g * known.normalised()).sum(per_channel, true);
          const Tensor dx =
              known.gamma * known.inverse * (g - dbeta / n - known.normalised() * dgamma / n);
          const Placed dy = place_images(gradient);
          const Placed back = place_images(at::full_like(images, kNan));
          norm.y = dy.stack();
          // The sink is the row itself, as plain gradient steps have it.
          kernels().batch_norm_gradient({.norm = norm,
                                         .dx = back.stack(),
                                         .sink = {.out = row.columns(), .scale = -.5, .keep = 1}});
          // dx is a difference of numbers about 50 times as large.
          expect_close(back.values(), dx.reshape(images.sizes()), 100);
          after.narrow(1, 0, k).sub_(.5 * dgamma.view({kClients, k}));
          after.narrow(1, k, k).sub_(.5 * dbeta.view({kClients, k}));
          expect_close(row.values(), after, 50);
          // with neither of them, and one that is not read
          kernels().batch_norm_gradient({.norm = norm});
          const Placed fresh = place(at::full({kClients, 2 * k}, kNan, type()), lie.gaps);
          const Placed again = place(parameters, lie.gaps);
          norm.parameters = again.columns();
          kernels().batch_norm_gradient({.norm = norm, .sink = {.out = fresh.columns()}});
          expect_close(fresh.values().narrow(1, 0, k), dgamma.view({kClients, k}), 50);
          expect_close(fresh.values().narrow(1, k, k), dbeta.view({kClients, k}), 50);
        }
      }
    }
  }
}

TEST_P(ImageKernels, PooledNormKeepsNanAndSendsGradientsToTheFirstOfEqualOnes) {
  const DeviceImage in{1, 2, 4};
  // Windows {1, 1, 1, 1} and {NaN, 0, 0, 0}
  Tensor images = at::ones({1, 1, 8}, type());
  images[0][0][2] = kNan;
  const Placed x = place(images);
  const Placed y = place(at::zeros({1, 1, 2}, type()));
  const Placed row = place(at::tensor({1., 0., 0., 1.}, at::kDouble).to(type()).view({1, 4}));
  DeviceBatchNorm norm{.type = real(),
                       .then = Then::ReluMaxPool,
                       .in = in,
                       .x = x.stack(),
                       .y = y.stack(),
                       .parameters = row.columns()};
  kernels().batch_norm(norm);
  EXPECT_EQ(y.values()[0][0][0].item<double>(), 1);
  EXPECT_TRUE(std::isnan(y.values()[0][0][1].item<double>()));

  // The sums are known: mean 1, nothing saved but (1, 0), so that dx = 0 but for the sink's sums.
  const Placed ones = place(at::ones({1, 1, 8}, type()));
  const Tensor saved = doubles({0, 1});
  const Placed dy = place(at::full({1, 1, 2}, 3, type()));
  const Placed dx = place(at::zeros({1, 1, 8}, type()));
  norm.x = ones.stack();
  norm.y = dy.stack();
  norm.saved = static_cast<double*>(saved.data_ptr());
  kernels().batch_norm_gradient({.norm = norm, .dx = dx.stack()});
  // g = 3 at the first of both windows; dbeta = dgamma = 6, n = 8: dx = g - 6/8 - 6/8.
  const Tensor expected =
      at::tensor({1.5, -1.5, 1.5, -1.5, -1.5, -1.5, -1.5, -1.5}, at::kDouble).view({1, 1, 8});
  expect_close(dx.values(), expected);
}

TEST_P(ImageKernels, SumsAreTheSameBitsEveryTime) {
  const DeviceImage in{4, 32, 32};
  const Tensor images = random({2, 16, values_of(in)});
  const Tensor parameters = at::ones({2, 16}, type());
  Tensor first;
  for (int run = 0; run < 3; ++run) {
    const Placed x = place(images);
    const Placed y = place(at::zeros_like(images));
    const Placed row = place(parameters);
    const Tensor saved = placed(at::zeros({2, 2, 4}, at::kDouble));
    kernels().batch_norm({.type = real(),
                          .training = true,
                          .in = in,
                          .epsilon = 1e-5,
                          .momentum = .1,
                          .x = x.stack(),
                          .y = y.stack(),
                          .parameters = row.columns(),
                          .saved = static_cast<double*>(saved.data_ptr())});
    if (run == 0) first = saved.cpu();
    EXPECT_TRUE(saved.cpu().equal(first));
  }
}

FEDHPC_KERNEL_TESTS(ImageKernels);

}  // namespace

}  // namespace fedhpc::test
