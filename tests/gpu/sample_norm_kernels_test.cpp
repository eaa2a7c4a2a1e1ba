// Kernels of norms of samples against the formulas in float64.

#include "fedhpc/core/error.hpp"

#include "gpu/kernel_case.hpp"
#include "support/turns.hpp"

namespace fedhpc::test {

using testing::takes_case;

namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 4;
constexpr double kEpsilon = 1e-5;

class SampleNormKernels : public KernelTest {
 protected:
  Placed place(const Tensor& values, Gaps gaps = Gaps::None, std::int64_t channels = 0) const {
    return {values, gaps, place_of(on_device()), channels};
  }
};

struct Case {
  std::int64_t groups;
  std::int64_t channels;  // of a group
  std::int64_t places;
  bool shared = false;

  std::int64_t width() const { return groups * channels * places; }
  std::vector<std::int64_t> shape() const { return {kClients, kBatch, groups, channels, places}; }
  /// Of parameters [C, n], so that they fit values of that shape.
  std::vector<std::int64_t> of_parameters() const {
    return {kClients, 1, shared ? 1 : groups, channels, 1};
  }
};
const std::vector<Case> kCases{{2, 3, 16},       {1, 4, 35},      {3, 9, 1},  {4, 40, 1},
                               {5, 37, 1, true}, {2, 3, 8, true}, {2, 2, 512}};

TEST_P(SampleNormKernels, NormaliseAndGoBackLikeTheFormulas) {
  for (const Case& of : kCases) {
    for (const bool relu : {false, true}) {
      for (const std::int64_t parameters : {0, 1, 2}) {
        for (const Gaps gaps : kAllGaps) {
          for (const bool by_channels : {false, true}) {
            if (by_channels && of.places == 1) continue;
            if (!takes_case(concat(of.width(), ' ', of.places, ' ', relu, ' ', parameters, ' ',
                                   static_cast<int>(gaps), ' ', by_channels),
                            4)) {
              continue;
            }
            const std::int64_t lie = by_channels ? of.groups * of.channels : 0;
            // A mean far from 0: the variance must not be lost to cancellation.
            const Tensor values = 50 + random({kClients, kBatch, of.width()});
            const std::int64_t width = of.shared ? of.channels : of.groups * of.channels;
            const Tensor row = random({kClients, 2 * width});
            const auto parameter = [&](std::int64_t which) {
              const Tensor all = row.narrow(1, which * width, width).to(at::kDouble);
              return (parameters > which ? all : at::full_like(all, which == 0 ? 1. : 0.))
                  .reshape(of.of_parameters());
            };
            const std::vector<std::int64_t> part{3, 4};
            const Tensor x = values.to(at::kDouble).view(of.shape());
            const Tensor mean = x.mean(part, true);
            const Tensor inverse = 1 / ((x - mean).square().mean(part, true) + kEpsilon).sqrt();
            const Tensor normal = (x - mean) * inverse;
            const Tensor z = normal * parameter(0) + parameter(1);
            const std::vector<std::int64_t> stack{kClients, kBatch, of.width()};

            const Placed in = place(values, gaps, lie);
            const Placed out = place(at::full(stack, kNan, type()), gaps, lie);
            const Placed weights = place(row, gaps);
            const auto of_parts = [&] {
              return place(at::full({kClients, kBatch, of.groups}, kNan, at::kDouble), gaps);
            };
            const Placed means = of_parts();
            const Placed inverses = of_parts();
            const auto columns = [&](const Placed& from, std::int64_t which) {
              DeviceColumns all = from.columns();
              all.data = static_cast<char*>(all.data) +
                         which * width * static_cast<std::int64_t>(row.itemsize());
              return all;
            };
            DeviceSampleNorm norm{.type = real(),
                                  .relu = relu,
                                  .groups = of.groups,
                                  .channels = of.channels,
                                  .places = of.places,
                                  .shared = of.shared,
                                  .epsilon = kEpsilon,
                                  .x = in.stack(),
                                  .y = out.stack()};
            if (parameters > 0) norm.weight = columns(weights, 0);
            if (parameters > 1) norm.bias = columns(weights, 1);
            kernels().sample_norm(norm);  // of an evaluation
            const Tensor y = relu ? z.relu() : z;
            expect_close(out.values(), y.reshape(stack), 20);
            norm.mean = means.stack();
            norm.inverse = inverses.stack();
            kernels().sample_norm(norm);
            expect_close(out.values(), y.reshape(stack), 20);
            expect_close(means.values(), mean.reshape({kClients, kBatch, of.groups}));
            expect_close(inverses.values(), inverse.reshape({kClients, kBatch, of.groups}));

            // Rounding may take a value near 0 for one beside it.
            const Tensor gradient =
                at::where(z.abs().lt(1e-3), at::zeros_like(z), random(of.shape()).to(at::kDouble))
                    .to(type())
                    .reshape(stack);
            const Tensor dy = gradient.to(at::kDouble).view(of.shape());
            const Tensor g = relu ? at::where(z.gt(0), dy, at::zeros_like(dy)) : dy;
            const Tensor h = g * parameter(0);
            const Tensor dx =
                inverse * (h - h.mean(part, true) - normal * (h * normal).mean(part, true));
            const auto sums = [&](const Tensor& all) {
              return all.sum_to_size(of.of_parameters()).reshape({kClients, width});
            };
            const Placed given = place(gradient, gaps, lie);
            const Placed back = place(at::full(stack, kNan, type()), gaps, lie);
            norm.y = given.stack();
            DeviceSampleNormGradient way{.norm = norm, .dx = back.stack()};
            // The sinks are the parameters themselves, as plain gradient steps have it.
            if (parameters > 0) way.weight = {columns(weights, 0), -.5, 1};
            if (parameters > 1) way.bias = {columns(weights, 1), -.5, 1};
            kernels().sample_norm_gradient(way);
            expect_close(back.values(), dx.reshape(stack), 50);
            Tensor after = row.to(at::kDouble).clone();
            if (parameters > 0) after.narrow(1, 0, width).sub_(.5 * sums(g * normal));
            if (parameters > 1) after.narrow(1, width, width).sub_(.5 * sums(g));
            expect_close(weights.values(), after, 50);
            // a sink that is not read, and no gradient of the input
            const Placed fresh = place(at::full({kClients, 2 * width}, kNan, type()), gaps);
            const Placed again = place(row, gaps);
            if (parameters == 0) continue;
            way.norm.weight = columns(again, 0);
            if (parameters > 1) way.norm.bias = columns(again, 1);
            way.dx = {};
            way.weight = {columns(fresh, 0), 1, 0};
            way.bias = {};
            kernels().sample_norm_gradient(way);
            expect_close(fresh.values().narrow(1, 0, width), sums(g * normal), 50);
            EXPECT_TRUE(fresh.values().narrow(1, width, width).isnan().all().item<bool>());
          }
        }
      }
    }
  }
}

TEST_P(SampleNormKernels, NanStaysInItsPart) {
  Tensor values = random({1, 2, 8});
  values[0][1][5] = kNan;
  const Placed in = place(values);
  const Placed out = place(at::zeros_like(values));
  kernels().sample_norm({.type = real(),
                         .relu = true,
                         .groups = 2,
                         .channels = 1,
                         .places = 4,
                         .epsilon = kEpsilon,
                         .x = in.stack(),
                         .y = out.stack()});
  const Tensor nan = out.values().isnan().view({2, 2, 4});
  EXPECT_TRUE(nan[1][1].all().item<bool>());
  EXPECT_EQ(nan.sum().item<std::int64_t>(), 4);
}

FEDHPC_KERNEL_TESTS(SampleNormKernels);

}  // namespace

}  // namespace fedhpc::test
