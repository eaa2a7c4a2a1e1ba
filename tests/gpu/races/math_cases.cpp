#include <array>

#include "gpu/races/cases.hpp"

namespace fedhpc::test {

namespace {

// Sizes of most cases leave a part of a tile, team, group or pack without work.

DeviceProduct product(Memory& memory, std::int64_t count, std::int64_t rows, std::int64_t columns,
                      std::int64_t inner, bool turn_a, bool turn_b) {
  return {.type = memory.type(),
          .count = count,
          .rows = rows,
          .columns = columns,
          .inner = inner,
          .alpha = 1.5,
          .beta = -0.5,
          .a = memory.matrices(count, rows, inner, turn_a),
          .b = memory.matrices(count, inner, columns, turn_b),
          .result = memory.matrices(count, rows, columns)};
}

void products(AllKernels& kernels, Memory& memory) {
  for (const int which : {0, 1, 2, 3}) {
    DeviceProduct of = product(memory, 2, 33, 70, 37, which % 2 > 0, which / 2 > 0);
    if (which == 0) of.precision = Precision::Tf32;
    kernels.product_in_order(of);
  }
  const DeviceProduct whole = product(memory, 1, 32, 64, 48, false, true);
  kernels.product_in_order(whole);
}

void long_products(AllKernels& kernels, Memory& memory) {
  DeviceProduct of = product(memory, 2, 9, 6, DeviceProduct::kPart + 30, true, false);
  of.parts = memory.numbers(2 * 2 * 9 * 6);
  kernels.product_in_order(of);
}

void residuals(AllKernels& kernels, Memory& memory) {
  for (const auto& [rows, columns, rank] : {std::array<std::int64_t, 3>{40, 130, 70}, {5, 66, 3}}) {
    for (const bool turned : {false, true}) {
      kernels.residual_product({.type = memory.type(),
                                .count = 2,
                                .rows = rows,
                                .columns = columns,
                                .rank = rank,
                                .scale = 0.5,
                                .own = memory.matrices(2, rows, rank),
                                .other = memory.matrices(2, columns, rank),
                                .w = memory.matrices(2, rows, columns, turned),
                                .out = memory.matrices(2, rows, rank)});
    }
  }
}

std::vector<std::int64_t> labels(std::int64_t count, std::int64_t classes) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(i * 5 % classes);
  return all;
}

void losses_of(AllKernels& kernels, Memory& memory, std::int64_t batch) {
  constexpr std::int64_t kClasses = 37;
  const DeviceStack logits = memory.stack(2, batch, kClasses);
  const std::int64_t* of_logits = memory.keep(labels(2 * batch, kClasses));
  for (const DeviceStack& gradient : {memory.stack(2, batch, kClasses), logits}) {
    kernels.cross_entropy({.type = memory.type(),
                           .logits = logits,
                           .labels = of_logits,
                           .label_stride = batch,
                           .gradient = gradient,
                           .loss = memory.doubles(2)});
  }
  kernels.score({.type = memory.type(),
                 .logits = memory.stack(1, batch, kClasses),
                 .labels = of_logits,
                 .correct = memory.doubles(batch),
                 .loss = memory.doubles(batch)});
}

/// Of a few samples first: ThreadSanitizer of newer compilers forgets some races of more than 255 threads.
void losses(AllKernels& kernels, Memory& memory) {
  for (const std::int64_t batch : {3, 19}) losses_of(kernels, memory, batch);
}

constexpr std::int64_t kColumns = 5000;  // more than a group takes

void steps(AllKernels& kernels, Memory& memory) {
  // Short ones in one pack, long ones, one across the columns of two groups.
  const std::vector<Range> ranges{{0, 1}, {3, 4}, {7, 30}, {32, 4080}, {4090, 4099}, {4101, 4999}};
  const Range* placed = memory.keep(ranges);
  const auto count = static_cast<std::int64_t>(ranges.size());
  const double* lr = memory.keep(std::vector<double>{0.05});
  const DeviceAdamCount age{.rows = 2,
                            .steps = memory.keep(std::vector<std::int64_t>{-1, 2}),
                            .corrections = memory.doubles(4)};
  kernels.count_adam(age);
  for (const auto rule : {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Nesterov,
                          OptimizerKind::Adam}) {
    const DevicePenalty penalty{
        .mu = .3, .gamma = .2, .rho = .5, .centre = memory.columns(2, kColumns)};
    const DeviceColumns w = memory.columns(2, kColumns);
    const DeviceColumns g = memory.columns(2, kColumns);
    kernels.add_penalty_gradient({.type = memory.type(),
                                  .rows = 2,
                                  .ranges = placed,
                                  .range_count = count,
                                  .columns = kColumns,
                                  .g = g,
                                  .w = w,
                                  .penalty = penalty});
    // Second moments begin with 0.
    const DeviceColumns second = memory.columns(2, kColumns);
    kernels.accumulate({.type = memory.type(),
                        .rows = 2,
                        .columns = kColumns,
                        .values = second,
                        .sink = {.out = second, .scale = -1, .keep = 1}});
    kernels.step({.type = memory.type(),
                  .rule = rule,
                  .rows = 2,
                  .ranges = placed,
                  .range_count = count,
                  .columns = kColumns,
                  .w = w,
                  .g = g,
                  .states = {memory.columns(2, kColumns), second},
                  .lr = lr,
                  .momentum = .9,
                  .weight_decay = .01,
                  .penalty = penalty,
                  .corrections = age.corrections});
  }
}

void sums_of_rows(AllKernels& kernels, Memory& memory) {
  constexpr std::int64_t kLong = DeviceRowProducts::kPiece + 9;
  const std::int64_t pieces = DeviceRowProducts::pieces_of(kLong);
  double* of_pieces = memory.doubles(2 * 2 * pieces);
  kernels.row_products({.type = memory.type(),
                        .rows = 2,
                        .columns = kLong,
                        .x = memory.columns(2, kLong),
                        .y = memory.columns(2, kLong),
                        .pieces = pieces,
                        .sums = of_pieces});
  kernels.add_pieces(
      {.rows = 4, .pieces = pieces, .of_pieces = of_pieces, .sums = memory.doubles(4)});
  kernels.accumulate({.type = memory.type(),
                      .rows = 3,
                      .columns = 84,
                      .values = memory.columns(3, 84),
                      .sink = {.out = memory.columns(3, 84), .scale = 3, .keep = -.5}});
  kernels.add_weighted(
      {.type = memory.type(),
       .rows = 11,
       .columns = 35,
       .values = memory.columns(11, 35),
       .segments = memory.keep(std::vector<std::int64_t>{0, 2, 1, 1, 2, 2, 0, 0, 1, 1, 2}),
       .weights = memory.doubles(11),
       .segment_count = 3,
       .sums = memory.doubles(3 * 36)});
  kernels.contract({.type = memory.type(),
                    .g = memory.stack(2, 7 * 5, 9),
                    .inner_stride = memory.stack(1, 1, 9).sample_stride,
                    .factor = memory.stack(2, 5, 9),
                    .out = memory.stack(2, 7, 9)});
  kernels.advance(memory.keep(std::vector<std::int64_t>(300, 4)), 300);
}

void networks(AllKernels& kernels, Memory& memory) {
  constexpr std::int64_t kNodes = 4;
  constexpr std::int64_t kEdges = 5;
  constexpr std::int64_t kStripes = 3;
  constexpr std::int64_t kWidth = kStripes * DeviceNetwork::kStripe;
  using Numbers = std::vector<std::int32_t>;
  for (const auto norm : {VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity}) {
    Memory aligned(memory.type(), true);  // as a network always is
    const DeviceNetwork network{.type = memory.type(),
                                .norm = norm,
                                .nodes = kNodes,
                                .edges = kEdges,
                                .stripes = kStripes,
                                .ends = memory.keep(Numbers{0, 1, 0, 2, 1, 2, 1, 3, 2, 3}),
                                .joined = memory.keep(Numbers{0,  1, 1,  2, -1, 0, 2,  2, 3,  3,
                                                              -2, 0, -3, 1, 4,  3, -4, 1, -5, 2}),
                                .starts = memory.keep(Numbers{0, 2, 5, 8, 10}),
                                .numbers = memory.numbers(kEdges),
                                .z = aligned.numbers(kNodes * kWidth),
                                .v = aligned.numbers(kNodes * kWidth),
                                .a = aligned.numbers(kEdges * kWidth)};
    kernels.network_residuals(
        {.of = network, .eta_rho = 0.3, .residuals = aligned.numbers(kNodes * kWidth)});
    double* sums = memory.doubles(kStripes * kEdges * 2);
    for (const bool stays : {true, false}) {
      kernels.network_differences({.of = network,
                                   .stays = stays,
                                   .levels = memory.doubles(kEdges),
                                   .sums = norm == VectorNorm::One ? nullptr : sums});
    }
    kernels.network_squares(
        {.of = network, .eta = 0.5, .rho = 0.7, .sums = memory.doubles(6 * kStripes)});
    memory.keep(aligned.all());
  }
}

}  // namespace

std::vector<Case> math_cases() {
  return {{"products", products},   {"long_products", long_products},
          {"residuals", residuals}, {"losses", losses},
          {"steps", steps},         {"sums_of_rows", sums_of_rows},
          {"networks", networks}};
}

}  // namespace fedhpc::test
