#include "fedhpc/math/fused_lasso.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "fedhpc/core/device.hpp"

#include "math/wide.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kBlock = 256;  // coordinates between two looks at the memory that is left
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One side of the funnel in which the string runs on from its apex, the last point that is
/// settled: the shortest ways to the tube's lower edge (slopes fall) and to its upper edge (slopes
/// rise). Signs of the upper one are turned, so that both are the same. The slot before the first
/// edge holds a NaN: every comparison with it fails, which ends the loops.
struct Hull {
  StringEdge* first;
  StringEdge* last;
  bool is_straight() const { return first == last; }
};

/// The slot before the first edge, and an edge of length 0 from the middle of the tube to its edge.
Hull begin_hull(std::vector<StringEdge>& memory, double gamma) {
  memory.resize(std::max<std::size_t>(memory.size(), 4 * kBlock));
  memory[0] = {kNan, 1};
  memory[1] = {-gamma, 0};
  return {memory.data() + 1, memory.data() + 1};
}

/// Makes room for another block of edges. Edges move only after as many were put behind them, so
/// that this is linear work.
void make_room(std::vector<StringEdge>& memory, Hull& hull) {
  const std::int64_t held = hull.last - hull.first + 2;  // with the slot
  const auto capacity = static_cast<std::int64_t>(memory.size());
  if (hull.last + 1 + kBlock <= memory.data() + capacity) return;
  if (2 * (held + kBlock) <= capacity) {
    std::copy(hull.first - 1, hull.last + 1, memory.data());
  } else {
    std::vector<StringEdge> larger(static_cast<std::size_t>(3 * (held + kBlock)));
    std::copy(hull.first - 1, hull.last + 1, larger.data());
    memory.swap(larger);
  }
  hull = {memory.data() + 1, memory.data() + held - 1};
}

/// Puts an edge of length 1 behind the hull: merges it with the edges before it for as long as
/// their slopes are not larger. Returns the last edge.
FEDHPC_INLINE StringEdge* append(StringEdge* last, double height, std::int64_t& visits) {
  StringEdge edge{height, 1};
  while (last->sum * edge.length <= edge.sum * last->length) {
    edge.sum += last->sum;
    edge.length += last->length;
    --last;
    ++visits;
  }
  *++last = edge;
  return last;
}

/// Where the solution is written: over the row's coordinates that have been read.
template <typename T>
struct Output {
  T* row;
  std::int64_t settled;  ///< coordinates of the solution that are known

  /// Settles the next `length` coordinates. Writes whole groups where that reaches no coordinate
  /// that is still to be read.
  FEDHPC_INLINE void settle(double value, double length, std::int64_t read) {
    constexpr std::int64_t kGroup = 8;
    const T plateau = static_cast<T>(value) + T{0};  // -0 + 0 = 0
    const auto count = static_cast<std::int64_t>(length);
    const std::int64_t rounded = (count + kGroup - 1) / kGroup * kGroup;
    T* begin = row + settled;
    const bool fits = settled + rounded <= read;
    settled += count;
    if (!fits) return void(std::fill_n(begin, count, plateau));
    for (std::int64_t i = 0; i < rounded; i += kGroup) {
      for (std::int64_t lane = 0; lane < kGroup; ++lane) begin[i + lane] = plateau;
    }
  }
};

/// True where the straight way to one side leaves the funnel through the other: slopes of `bent`
/// are turned.
FEDHPC_INLINE bool leaves(const StringEdge& straight, const StringEdge& bent) {
  return straight.sum * bent.length + bent.sum * straight.length > 0;
}

/// The funnel's sides and the apex after the string has been drawn round the points of `bent` that
/// are in the way of `straight`.
template <typename T>
void draw_round(Hull& straight, Hull& bent, double sign, double gamma, std::int64_t read,
                Output<T>& out, std::int64_t& visits) {
  StringEdge way = *straight.first;
  while (!bent.is_straight() && leaves(way, *bent.first)) {
    StringEdge& passed = *bent.first++;
    out.settle(sign * passed.sum / passed.length, passed.length, read);
    way.sum += passed.sum;
    way.length -= passed.length;
    passed = {kNan, 1};
    ++visits;
  }
  // Both sides end above one another, 2 gamma apart: frees `way` of the rounding it has gathered.
  if (bent.is_straight()) way.sum = -bent.first->sum - 2 * gamma;
  *straight.first = way;
}

/// The free end: along a side for as long as it leads away from slope 0, then level.
template <typename T>
void finish(const Hull& lower, const Hull& upper, std::int64_t count, Output<T>& out,
            std::int64_t& visits) {
  for (const auto& [side, sign] : {std::pair(lower, 1.0), std::pair(upper, -1.0)}) {
    const StringEdge* edge = side.first;
    for (; edge <= side.last && edge->sum > 0; ++edge) {
      out.settle(sign * edge->sum / edge->length, edge->length, count);
      ++visits;
    }
    if (edge != side.first) break;
  }
  out.settle(0, static_cast<double>(count - out.settled), count);
}

}  // namespace

template <typename T>
void FusedLasso::row_(T* row, std::int64_t count, double gamma) {
  Hull lower = begin_hull(hulls_[0], gamma);
  Hull upper = begin_hull(hulls_[1], gamma);
  Output<T> out{row, 0};
  std::int64_t visits = 2 * count;
  double not_finite = 0;
  for (std::int64_t i = 0; i < count;) {
    make_room(hulls_[0], lower);
    make_room(hulls_[1], upper);
    const std::int64_t end = std::min(count, i + kBlock);
    while (i < end) {
      const double g = static_cast<double>(row[i++]);
      not_finite += g - g;
      lower.last = append(lower.last, g, visits);
      upper.last = append(upper.last, -g, visits);
      if (lower.is_straight() && leaves(*lower.first, *upper.first)) {
        draw_round(lower, upper, -1, gamma, i, out, visits);
      } else if (upper.is_straight() && leaves(*upper.first, *lower.first)) {
        draw_round(upper, lower, 1, gamma, i, out, visits);
      }
    }
  }
  finish(lower, upper, count, out, visits);
  if (not_finite != 0) std::fill_n(row, count, std::numeric_limits<T>::quiet_NaN());
  visits_ += visits;
}

void FusedLasso::prox_(const Tensor& rows, double gamma) {
  require(rows.dim() == 2, "rows are [C, n]");
  require(rows.size(1) <= 1 || rows.stride(1) == 1, "columns are contiguous");
  require(rows.size(0) <= 1 || rows.stride(0) >= rows.size(1), "rows do not overlap");
  require(gamma >= 0, "gamma is not negative");
  visits_ = 0;
  if (gamma == 0) return;
  const HostEdit edit(rows);
  const Tensor& here = edit.values();
  with_type(here.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < here.size(0); ++c) {
      row_(here.data_ptr<T>() + c * here.stride(0), here.size(1), gamma);
    }
  });
}

}  // namespace fedhpc
