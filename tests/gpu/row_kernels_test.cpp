// Kernels over rows of models: optimizer steps, penalties, sums.

#include "fedhpc/math/penalty_pass.hpp"

#include "gpu/kernel_case.hpp"

namespace fedhpc::test {

namespace {

class RowKernels : public KernelTest {
 protected:
  Placed place(const Tensor& values, Gaps gaps = Gaps::None) const {
    return {values, gaps, place_of(on_device())};
  }
  Tensor placed_ranges(const std::vector<Range>& ranges) const {
    std::vector<std::int64_t> numbers;
    for (const auto& [begin, end] : ranges) numbers.insert(numbers.end(), {begin, end});
    return longs(numbers);
  }
};

/// Ranges of 9000 columns: short, long, single ones, at odd places, across the pieces of groups.
const std::vector<Range> kRanges{{0, 1},       {3, 4},       {7, 30},     {32, 4096},
                                 {4097, 4099}, {5000, 8192}, {8500, 8999}};
constexpr std::int64_t kColumns = 9000;

bool in_ranges(std::int64_t column) {
  for (const auto& [begin, end] : kRanges) {
    if (begin <= column && column < end) return true;
  }
  return false;
}

/// What a step makes of one weight, in float64.
struct Weight {
  double w;
  double first = 0;
  double second = 0;

  void step(const DeviceStep& rule, double lr, double g, double centre, int t) {
    double d = g;
    if (rule.penalty.mu != 0) d += rule.penalty.mu * (w - centre);
    if (rule.penalty.gamma != 0) d += rule.penalty.gamma * std::tanh(w / rule.penalty.rho);
    d += rule.weight_decay * w;
    switch (rule.rule) {
      case OptimizerKind::Sgd:
        w -= lr * d;
        break;
      case OptimizerKind::Momentum:
        first = rule.momentum * first + d;
        w -= lr * first;
        break;
      case OptimizerKind::Nesterov:
        first = rule.momentum * first + d;
        w -= lr * (d + rule.momentum * first);
        break;
      case OptimizerKind::Adam:
        first = .9 * first + .1 * d;
        second = .999 * second + .001 * d * d;
        w -= lr / (1 - std::pow(.9, t)) * first /
             (std::sqrt(second / (1 - std::pow(.999, t))) + 1e-8);
        break;
    }
  }
};

TEST_P(RowKernels, StepsOfEveryRuleMoveTheRangesAlone) {
  const std::int64_t rows = 2;
  for (const OptimizerKind rule : {OptimizerKind::Sgd, OptimizerKind::Momentum,
                                   OptimizerKind::Nesterov, OptimizerKind::Adam}) {
    for (const Gaps gaps : kAllGaps) {
      for (const bool penalised : {false, true}) {
        const Tensor start = random({rows, kColumns});
        const Tensor centre = random({rows, kColumns});
        const Placed w = place(start, gaps);
        const Placed first = place(at::zeros_like(start), gaps);
        const Placed second = place(at::zeros_like(start), gaps);
        const Placed middle = place(centre, gaps);
        const Tensor ranges = placed_ranges(kRanges);
        const Tensor lr = doubles({.05});
        const Tensor steps = longs({-1, 2});  // the rows are not of one age
        const Tensor corrections = doubles({0, 0, 0, 0});
        const DeviceAdamCount age{.rows = rows,
                                  .steps = static_cast<std::int64_t*>(steps.data_ptr()),
                                  .corrections = static_cast<double*>(corrections.data_ptr())};
        kernels().count_adam(age);  // 0 and 3
        std::vector<Weight> known;
        const Tensor start64 = start.to(at::kDouble);
        for (std::int64_t i = 0; i < rows * kColumns; ++i) {
          known.push_back({start64.const_data_ptr<double>()[i]});
        }
        DeviceStep step{.type = real(),
                        .rule = rule,
                        .rows = rows,
                        .ranges = static_cast<const Range*>(ranges.data_ptr()),
                        .range_count = static_cast<std::int64_t>(kRanges.size()),
                        .columns = kColumns,
                        .w = w.columns(),
                        .states = {first.columns(), second.columns()},
                        .lr = static_cast<const double*>(lr.data_ptr()),
                        .momentum = .9,
                        .weight_decay = .01,
                        .corrections = age.corrections};
        if (penalised) {
          step.penalty = {.mu = .3, .gamma = .2, .rho = .5, .centre = middle.columns()};
        }
        for (int round = 0; round < 2; ++round) {
          const bool has_gradients = !penalised || round == 0;
          const Tensor gradients = has_gradients ? random({rows, kColumns}) : at::zeros_like(start);
          const Placed g = place(gradients, gaps);
          step.g = has_gradients ? g.columns() : DeviceColumns{};
          kernels().step(step);
          kernels().count_adam(age);
          const Tensor g64 = gradients.to(at::kDouble);
          const Tensor c64 = centre.to(at::kDouble);
          for (std::int64_t i = 0; i < rows * kColumns; ++i) {
            if (!in_ranges(i % kColumns)) continue;
            known[static_cast<std::size_t>(i)].step(step, .05, g64.const_data_ptr<double>()[i],
                                                    c64.const_data_ptr<double>()[i],
                                                    round + 1 + (i < kColumns ? 0 : 3));
          }
        }
        Tensor expected = at::zeros({rows, kColumns}, at::kDouble);
        Tensor state = at::zeros({rows, kColumns}, at::kDouble);
        for (std::int64_t i = 0; i < rows * kColumns; ++i) {
          expected.data_ptr<double>()[i] = known[static_cast<std::size_t>(i)].w;
          state.data_ptr<double>()[i] = known[static_cast<std::size_t>(i)].first;
        }
        // Adam divides by the square root of a gradient that may be close to 0.
        expect_close(w.values(), expected, rule == OptimizerKind::Adam ? 50 : 1);
        expect_close(first.values(), state);
        const Tensor moved = w.values();
        for (const std::int64_t column : {1, 6, 30, 4096, 4099, 8192, 8999}) {
          EXPECT_TRUE(moved.select(1, column).equal(start.select(1, column))) << column;
        }
      }
    }
  }
}

TEST_P(RowKernels, NanOfOneRowStaysThere) {
  Tensor start = at::zeros({3, 40}, type());
  start[1].fill_(kNan);
  const Placed w = place(start, Gaps::Even);
  const Placed g = place(at::full_like(start, 1), Gaps::Even);
  const Tensor ranges = placed_ranges({{0, 40}});
  const Tensor lr = doubles({.5});
  kernels().step({.type = real(),
                  .rows = 3,
                  .ranges = static_cast<const Range*>(ranges.data_ptr()),
                  .range_count = 1,
                  .columns = 40,
                  .w = w.columns(),
                  .g = g.columns(),
                  .lr = static_cast<const double*>(lr.data_ptr())});
  EXPECT_TRUE(w.values()[1].isnan().all().item<bool>());
  EXPECT_TRUE(w.values()[0].eq(-.5).all().item<bool>());
  EXPECT_TRUE(w.values()[2].eq(-.5).all().item<bool>());
}

TEST_P(RowKernels, PenaltyGradientLikeTheHosts) {
  for (const Gaps gaps : kAllGaps) {
    for (const auto& weights : {std::pair{.5, 0.}, {0., .25}, {.5, .25}, {0., 0.}}) {
      const double mu = weights.first;
      const double gamma = weights.second;
      Tensor start = 3 * random({2, kColumns});
      if (mu != 0) start[0][10] = kNan;  // the host's tanh makes 1 of NaN
      start[0][11] = 1e30;
      start[1][12] = -1e-30;
      const Tensor centre = random({2, kColumns});
      const Tensor gradients = random({2, kColumns});
      Tensor expected = gradients.clone();
      with_type(type(), [&]<typename T>() {
        for (std::int64_t c = 0; c < 2; ++c) {
          for (const auto& [begin, end] : kRanges) {
            const std::int64_t at = c * kColumns + begin;
            add_penalty_gradient_(expected.data_ptr<T>() + at, start.const_data_ptr<T>() + at,
                                  centre.const_data_ptr<T>() + at, end - begin,
                                  {.mu = mu, .gamma = gamma, .rho = .7});
          }
        }
      });
      const Placed w = place(start, gaps);
      const Placed g = place(gradients, gaps);
      const Placed middle = place(centre, gaps);
      const Tensor ranges = placed_ranges(kRanges);
      kernels().add_penalty_gradient(
          {.type = real(),
           .rows = 2,
           .ranges = static_cast<const Range*>(ranges.data_ptr()),
           .range_count = static_cast<std::int64_t>(kRanges.size()),
           .columns = kColumns,
           .g = g.columns(),
           .w = w.columns(),
           .penalty = {.mu = mu,
                       .gamma = gamma,
                       .rho = .7,
                       .centre = mu == 0 ? DeviceColumns{} : middle.columns()}});
      expect_close(g.values(), expected);
    }
  }
}

TEST_P(RowKernels, Accumulate) {
  for (const std::int64_t columns : {1, 6, 64}) {
    for (const Gaps gaps : kAllGaps) {
      const Tensor values = random({3, columns});
      const Tensor old = random({3, columns});
      for (const double keep : {0.0, 1.0, -.5}) {
        const Placed from = place(values, gaps);
        const Placed out = place(keep == 0 ? at::full_like(old, kNan) : old, gaps);
        kernels().accumulate({.type = real(),
                              .rows = 3,
                              .columns = columns,
                              .values = from.columns(),
                              .sink = {.out = out.columns(), .scale = 3, .keep = keep}});
        expect_close(out.values(), keep * old + 3 * values);
      }
    }
  }
}

TEST_P(RowKernels, WeightedSumsOfSegmentsInOrder) {
  for (const std::int64_t columns : {1, 17, 300}) {
    for (const Gaps gaps : kAllGaps) {
      const std::int64_t rows = 21;
      Tensor values = random({rows, columns});
      values[4].fill_(kNan);
      std::vector<std::int64_t> segments;
      std::vector<double> weights;
      Tensor expected = at::full({3, columns + 1}, 2, at::kDouble);
      for (std::int64_t c = 0; c < rows; ++c) {
        segments.push_back(c % 5 == 0 ? 2 : 0);  // nothing goes to the middle one
        weights.push_back(c == 4 ? 0 : .1 * static_cast<double>(c));
        if (c == 4) continue;
        auto sums = expected[segments.back()];
        sums.narrow(0, 0, columns).add_(values[c].to(at::kDouble), weights.back());
        sums[columns] += weights.back();
      }
      const Placed from = place(values, gaps);
      const Tensor device_segments = longs(segments);
      const Tensor device_weights = doubles(weights);
      const Tensor sums = placed(at::full({3, columns + 1}, 2, at::kDouble));
      kernels().add_weighted({.type = real(),
                              .rows = rows,
                              .columns = columns,
                              .values = from.columns(),
                              .segments = device_segments.const_data_ptr<std::int64_t>(),
                              .weights = static_cast<const double*>(device_weights.data_ptr()),
                              .segment_count = 3,
                              .sums = static_cast<double*>(sums.data_ptr())});
      expect_close(sums.cpu(), expected);
    }
  }
}

FEDHPC_KERNEL_TESTS(RowKernels);

}  // namespace

}  // namespace fedhpc::test
