#pragma once

#include <algorithm>

#include "gpu/kernels/all_kernels.hpp"

// What a kernel of the table has to move and to compute: every value that it needs or gives once,
// as if a device had room for it in between. Operations are additions, multiplications, divisions
// and comparisons of values; functions such as exp count as some.

namespace fedhpc::standin {

struct Cost {
  std::int64_t bytes = 0;
  double operations = 0;
};

namespace costs {

constexpr int kOfFunction = 8;  // operations of exp, tanh, log

inline std::int64_t size_of(DType type) { return type == DType::Float32 ? 4 : 8; }
inline std::int64_t values(const DeviceStack& of) { return of.clients * of.batch * of.width; }

/// A kernel that moves so many values of a type and computes `each` operations for each of some.
inline Cost moving(DType type, std::int64_t moved, std::int64_t computed = 0, int each = 1) {
  return {moved * size_of(type), static_cast<double>(computed) * each};
}

inline Cost of(const DeviceProduct& of) {
  const auto matrices = [&](const DeviceMatrices& one) {
    return one.stack_stride == 0 ? 1 : of.count;
  };
  const std::int64_t result = of.count * of.rows * of.columns;
  const std::int64_t factors =
      matrices(of.a) * of.rows * of.inner + matrices(of.b) * of.inner * of.columns;
  return moving(of.type, factors + result * (of.beta == 0 ? 1 : 2), result * of.inner, 2);
}

/// The sums of parts are written and read.
inline Cost in_order(const DeviceProduct& product) {
  Cost cost = of(product);
  const std::int64_t parts = DeviceProduct::parts_of(product.inner);
  if (parts > 1) {
    cost.bytes +=
        2 * parts * product.count * product.rows * product.columns * size_of(product.type);
  }
  return cost;
}

inline Cost of(const DeviceRowProducts& of) {
  const int read = of.y.data == nullptr ? 1 : 2;
  return moving(of.type, read * of.rows * of.columns, read * of.rows * of.columns, 2);
}
inline Cost of(const DevicePieces& of) {
  return moving(DType::Float64, of.rows * (of.pieces + 1), of.rows * of.pieces);
}

/// What passes over some rows of the nodes and some of the edges move; graph and numbers as well.
inline Cost over(const DeviceNetwork& of, int of_nodes, int of_edges) {
  const std::int64_t rows = of_nodes * of.nodes + of_edges * of.edges;
  Cost cost = moving(of.type, rows * of.stripes * DeviceNetwork::kStripe + of.edges);
  cost.bytes += (6 * of.edges + of.nodes + 1) * 4;
  return cost;
}
inline double of_edges(const DeviceNetwork& of, int each) {
  return static_cast<double>(of.edges * of.stripes * DeviceNetwork::kStripe) * each;
}
inline Cost of(const DeviceNetworkResiduals& of) {
  return {over(of.of, 3, 1).bytes, of_edges(of.of, 12)};
}
inline Cost of(const DeviceNetworkDifferences& of) {
  const int terms = of.of.norm == VectorNorm::One ? 0 : of.of.norm == VectorNorm::Two ? 1 : 2;
  const Cost cost = of.stays ? over(of.of, 0, 1) : over(of.of, 1, 2);
  return {cost.bytes + terms * of.of.stripes * of.of.edges * 8, of_edges(of.of, 6)};
}
inline Cost of(const DeviceNetworkSquares& of) {
  return {over(of.of, 2, 1).bytes + of.of.stripes * 6 * 8, of_edges(of.of, 14)};
}

inline Cost of(const DeviceGather& of) {
  const std::int64_t samples = of.inputs.clients * of.inputs.batch;
  Cost cost = moving(of.type, values(of.inputs), values(of.inputs), 2);
  cost.bytes += values(of.inputs) * (of.pixels ? 1 : size_of(of.type));
  cost.bytes += samples * (2 * 4 * of.target_words + static_cast<std::int64_t>(sizeof(DevicePick)));
  return cost;
}

inline Cost of(const DeviceCrossEntropy& of) {
  const int moved = of.gradient.data == nullptr ? 1 : 2;
  Cost cost = moving(of.type, moved * values(of.logits), values(of.logits), kOfFunction + 4);
  cost.bytes += of.logits.clients * (of.logits.batch + 2) * 8;
  return cost;
}
inline Cost of(const DeviceScore& of) {
  Cost cost = moving(of.type, values(of.logits), values(of.logits), kOfFunction + 4);
  cost.bytes += of.logits.batch * 3 * 8;
  return cost;
}

/// Values of rows in ranges, which lie in the device's memory: `reach` gives their address here.
template <typename Reach>
std::int64_t in_ranges(std::int64_t rows, const Range* ranges, std::int64_t count,
                       const Reach& reach) {
  std::int64_t columns = 0;
  const Range* first = reach(ranges);
  for (std::int64_t r = 0; r < count; ++r) columns += first[r].last - first[r].first;
  return rows * columns;
}

inline Cost of(const DevicePenalty& of, DType type, std::int64_t moved) {
  const Cost near = of.mu == 0 ? Cost{} : moving(type, moved, moved, 3);
  const int smooth = of.gamma == 0 ? 0 : kOfFunction + 3;
  return {near.bytes, near.operations + static_cast<double>(moved) * smooth};
}

template <typename Reach>
Cost of(const DeviceStep& step, const Reach& reach) {
  const std::int64_t moved = in_ranges(step.rows, step.ranges, step.range_count, reach);
  const bool adam = step.rule == OptimizerKind::Adam;
  int streams = 2 + (step.g.data == nullptr ? 0 : 1);  // w is read and written
  for (const DeviceColumns& state : step.states) streams += state.data == nullptr ? 0 : 2;
  const int each = adam ? 14 : step.states[0].data == nullptr ? 4 : 6;
  Cost cost = moving(step.type, streams * moved, moved, each);
  const Cost penalty = of(step.penalty, step.type, moved);
  return {cost.bytes + penalty.bytes, cost.operations + penalty.operations};
}

inline Cost of(const DeviceAdamCount& of) {
  return {of.rows * 4 * 8, static_cast<double>(of.rows) * (2 * kOfFunction + 5)};
}

template <typename Reach>
Cost of(const DevicePenaltyGradient& gradient, const Reach& reach) {
  const std::int64_t moved = in_ranges(gradient.rows, gradient.ranges, gradient.range_count, reach);
  Cost cost = of(gradient.penalty, gradient.type, moved);
  cost.bytes += 3 * moved * size_of(gradient.type);
  return cost;
}

inline Cost of(const DeviceWeightedSum& of) {
  Cost cost = moving(of.type, of.rows * of.columns, of.rows * of.columns, 2);
  cost.bytes += (2 * of.segment_count * (of.columns + 1) + 2 * of.rows) * 8;
  return cost;
}

inline Cost of(const DeviceContraction& of) {
  const std::int64_t terms = values(of.out) * of.factor.batch;
  return moving(of.type, terms + values(of.factor) + values(of.out), terms, 2);
}

/// The residual is made once, and stays in the device's nearest memory.
inline Cost of(const DeviceResidualProduct& of) {
  const std::int64_t weights = of.count * of.rows * of.columns;
  const std::int64_t factors = of.count * (2 * of.rows + of.columns) * of.rank;
  return moving(of.type, weights + factors, weights * of.rank, 4);
}

inline Cost of(const DeviceRelu& of) {
  return moving(of.type, values(of.x) + values(of.y), values(of.y));
}
inline Cost of(const DeviceReluGradient& of) {
  return moving(of.type, 3 * values(of.dx), values(of.dx));
}
inline Cost of(const DeviceBias& of) {
  return moving(of.type, 2 * values(of.y) + of.y.clients * of.y.width / of.places, values(of.y),
                of.relu ? 2 : 1);
}

inline std::int64_t sunk(const DeviceSink& sink, std::int64_t count) {
  return sink.out.data == nullptr ? 0 : (sink.keep == 0 ? 1 : 2) * count;
}
inline Cost of(const DeviceBiasGradient& of) {
  const std::int64_t channels = of.dy.clients * of.dy.width / of.places;
  const bool rectified = of.rectified.data != nullptr;
  return moving(of.type, (rectified ? 3 : 1) * values(of.dy) + sunk(of.sink, channels),
                values(of.dy), rectified ? 2 : 1);
}
inline Cost of(const DeviceAccumulate& of) {
  const std::int64_t moved = of.rows * of.columns;
  return moving(of.type, moved + sunk(of.sink, moved), moved, 2);
}

inline std::int64_t unfolded(const DeviceUnfold& of) {
  return of.x.clients * of.x.batch * of.in.channels * of.window.size.product() * of.out.height *
         of.out.width;
}
inline Cost of(const DeviceUnfold& of, bool sums) {
  return moving(of.type, values(of.x) + unfolded(of), sums ? unfolded(of) : 0);
}
inline Cost of(const DeviceTurn& of) {
  const bool adds = of.bias.data != nullptr;
  const std::int64_t bias = adds ? of.stack.clients * of.stack.width / of.places : 0;
  return moving(of.type, 2 * values(of.stack) + bias, adds ? values(of.stack) : 0);
}

inline Cost of(const DeviceMaxPool& of) {
  Cost cost = moving(of.type, values(of.x) + values(of.y), values(of.x));
  if (of.places.data != nullptr) cost.bytes += 4 * values(of.y);
  return cost;
}
inline Cost of(const DeviceAveragePool& of) {
  return moving(of.type, values(of.x) + values(of.y), values(of.x));
}

/// Sums over a channel need x, its values need it again: that counts once.
inline Cost of(const DeviceBatchNorm& of) {
  return moving(of.type, values(of.x) + values(of.y) + 6 * of.x.clients * of.in.channels,
                values(of.x), of.training ? 7 : 3);
}
inline Cost of(const DeviceBatchNormGradient& of) {
  const DeviceBatchNorm& norm = of.norm;
  const std::int64_t written = of.dx.data == nullptr ? 0 : values(of.dx);
  const std::int64_t channels = norm.x.clients * norm.in.channels;
  return moving(
      norm.type,
      values(norm.x) + values(norm.y) + written + sunk(of.sink, 2 * channels) + 6 * channels,
      values(norm.x), 12);
}

inline Cost of(const DeviceSampleNorm& of) {
  const std::int64_t parts = of.x.clients * of.x.batch * of.groups;
  Cost cost =
      moving(of.type, values(of.x) + values(of.y) + 2 * of.x.clients * of.width(), values(of.x), 8);
  cost.bytes += of.mean.data == nullptr ? 0 : 2 * 8 * parts;
  return cost;
}
/// Two kernels: the input's gradient, then the parameters', for which x and dy are read again.
inline Cost of(const DeviceSampleNormGradient& of) {
  const DeviceSampleNorm& norm = of.norm;
  const std::int64_t parameters = norm.x.clients * norm.width();
  const std::int64_t sunk_values = sunk(of.weight, parameters) + sunk(of.bias, parameters);
  Cost cost{};
  for (const std::int64_t written : {of.dx.data == nullptr ? 0 : values(of.dx), sunk_values}) {
    if (written == 0) continue;
    const Cost one = moving(norm.type, values(norm.x) + values(norm.y) + written + 2 * parameters,
                            values(norm.x), 9);
    cost.bytes += one.bytes + 2 * 8 * norm.x.clients * norm.x.batch * norm.groups;
    cost.operations += one.operations;
  }
  return cost;
}

}  // namespace costs

}  // namespace fedhpc::standin
