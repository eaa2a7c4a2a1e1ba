#include "models/attention_rows.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "math/exponential.hpp"
#include "math/wide.hpp"

namespace fedhpc {

namespace {

/// The vectors of a row of `keys` >= V numbers: the last one ends with the row and so repeats
/// numbers of the one before it, unless the vectors fit.
template <typename T, int V>
class RowVectors {
 public:
  using Vector = typename Lanes<T, V>::Type;

  FEDHPC_INLINE explicit RowVectors(std::int64_t keys) : last_(keys - V), whole_((keys - 1) / V) {
    T fresh[V];
    T places[V];
    for (int i = 0; i < V; ++i) {
      fresh[i] = last_ + i < whole_ * V ? T{0} : T{1};
      places[i] = static_cast<T>(i);
    }
    std::memcpy(&fresh_, fresh, sizeof fresh);
    std::memcpy(&places_, places, sizeof places);
  }

  /// The largest of the first `end` numbers.
  FEDHPC_INLINE T largest(const T* row, std::int64_t end) const {
    Vector most;
    see(row, last_, end, most);
    for (std::int64_t v = 0; v < whole_; ++v) {
      Vector x;
      see(row, v * V, end, x);
      most = x > most ? x : most;
    }
    return folded<V>(most, [](auto& a, const auto& b) { a = b > a ? b : a; });
  }

  FEDHPC_INLINE T sum(const T* row) const {
    return total(
        [&](std::int64_t begin, Vector& to) { to = vector_at<Vector>(row + begin).value; });
  }

  /// The sum of a[s] b[s].
  FEDHPC_INLINE T inner_product(const T* a, const T* b) const {
    return total([&](std::int64_t begin, Vector& to) {
      to = vector_at<Vector>(a + begin).value * vector_at<Vector>(b + begin).value;
    });
  }

  /// number(begin, to) gives every vector of the row from the old numbers.
  template <typename Number>
  FEDHPC_INLINE void change(T* row, Number&& number) const {
    Vector last;
    number(last_, last);
    for (std::int64_t v = 0; v < whole_; ++v) {
      Vector next;
      number(v * V, next);
      vector_at<Vector>(row + v * V).value = next;
    }
    vector_at<Vector>(row + last_).value = last;
  }

  /// A vector of the row with -infinity from place `end` on.
  FEDHPC_INLINE void see(const T* row, std::int64_t begin, std::int64_t end, Vector& to) const {
    const Vector nothing = Vector{} - std::numeric_limits<T>::infinity();
    to = places_ < static_cast<T>(end - begin) ? vector_at<Vector>(row + begin).value : nothing;
  }

 private:
  template <typename Number>
  FEDHPC_INLINE T total(Number&& number) const {
    Vector sum;
    number(last_, sum);
    sum *= fresh_;
    for (std::int64_t v = 0; v < whole_; ++v) {
      Vector next;
      number(v * V, next);
      sum += next;
    }
    return folded<V>(sum, [](auto& a, const auto& b) { a += b; });
  }

  /// All lanes, half onto half.
  template <int W, typename Both>
  FEDHPC_INLINE static T folded(const typename Lanes<T, W>::Type& lanes, Both&& both) {
    if constexpr (W == 1) {
      return lanes[0];
    } else {
      struct {
        typename Lanes<T, W / 2>::Type low, high;
      } halves;
      std::memcpy(&halves, &lanes, sizeof halves);
      both(halves.low, halves.high);
      return folded<W / 2>(halves.low, both);
    }
  }

  std::int64_t last_;
  std::int64_t whole_;
  Vector fresh_;   // 1 where the last vector has a number of its own
  Vector places_;  // 0, 1, 2, ...
};

template <typename T>
FEDHPC_INLINE void exp_all(T* __restrict values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = exp_of(values[i]);
}

/// The rows of one head: a matrix [queries, keys] that stays in the nearest cache.
template <typename T, int V>
FEDHPC_INLINE void softmax_head(const ScoreRows& of, T* scores, const T* mask) {
  using Rows = RowVectors<T, V>;
  using Vector = typename Rows::Vector;
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const Rows rows(of.keys);
  for (std::int64_t l = 0; l < of.queries; ++l) {
    T* row = scores + l * of.keys;
    if (mask != nullptr) {
      for (std::int64_t s = 0; s < of.keys; ++s) row[s] += mask[l * of.keys + s];
    }
    const std::int64_t seen = of.causal ? std::min(l + 1, of.keys) : of.keys;
    const T largest = rows.largest(row, seen);
    const T shift = largest == kNothing ? T{0} : largest;
    rows.change(row, [&](std::int64_t s, Vector& to) {
      rows.see(row, s, seen, to);
      to -= shift;
    });
  }
  exp_all(scores, of.queries * of.keys);
  for (std::int64_t l = 0; l < of.queries; ++l) {
    T* row = scores + l * of.keys;
    const T sum = rows.sum(row);
    const T factor = sum == 0 ? T{0} : 1 / sum;
    rows.change(
        row, [&](std::int64_t s, Vector& to) { to = vector_at<Vector>(row + s).value * factor; });
  }
}

template <typename T, int V>
FEDHPC_INLINE void softmax_with(const ScoreRows& of, const Tensor& mask) {
  T* scores = static_cast<T*>(of.values.data_ptr());
  const T* added = mask.defined() ? static_cast<const T*>(mask.const_data_ptr()) : nullptr;
  const std::int64_t of_head = of.queries * of.keys;
  const std::int64_t matrices = of.values.size(0) * of.heads;
  // A mask of all heads serves the matrices of a sample.
  const std::int64_t share = mask.defined() && mask.size(1) == of_head ? of.heads : 1;
  for (std::int64_t m = 0; m < matrices; ++m) {
    const T* of_matrix = added == nullptr ? nullptr : added + m / share * of_head;
    softmax_head<T, V>(of, scores + m * of_head, of_matrix);
  }
}

template <typename T, int V>
FEDHPC_INLINE void softmax_back_with(const ScoreRows& of, const T* dropped, T* gradient) {
  using Rows = RowVectors<T, V>;
  using Vector = typename Rows::Vector;
  const T* weights = static_cast<const T*>(of.values.const_data_ptr());
  const Rows rows(of.keys);
  const std::int64_t count = of.values.size(0) * of.heads * of.queries;
  for (std::int64_t r = 0; r < count; ++r) {
    const T* w = weights + r * of.keys;
    const T* d = dropped + r * of.keys;
    T* g = gradient + r * of.keys;
    const T sum = rows.inner_product(d, g);
    rows.change(g, [&](std::int64_t s, Vector& to) {
      to = vector_at<Vector>(d + s).value * vector_at<Vector>(g + s).value -
           vector_at<Vector>(w + s).value * sum;
    });
  }
}

template <typename T>
FEDHPC_INLINE void softmax_all(const ScoreRows& of, const Tensor& mask) {
  if (of.keys >= 16) return softmax_with<T, 16>(of, mask);
  if (of.keys >= 4) return softmax_with<T, 4>(of, mask);
  softmax_with<T, 1>(of, mask);
}

template <typename T>
FEDHPC_INLINE void softmax_all_back(const ScoreRows& of, const T* dropped, T* gradient) {
  if (of.keys >= 16) return softmax_back_with<T, 16>(of, dropped, gradient);
  if (of.keys >= 4) return softmax_back_with<T, 4>(of, dropped, gradient);
  softmax_back_with<T, 1>(of, dropped, gradient);
}

template <typename T>
FEDHPC_WIDE void wide_softmax_all(const ScoreRows& of, const Tensor& mask) {
  softmax_all<T>(of, mask);
}

template <typename T>
FEDHPC_WIDE void wide_softmax_all_back(const ScoreRows& of, const T* dropped, T* gradient) {
  softmax_all_back(of, dropped, gradient);
}

}  // namespace

void softmax_rows(const ScoreRows& scores, const Tensor& mask) {
  with_type(scores.values.scalar_type(), [&]<typename T>() {
    const auto run = has_wide_vectors() ? wide_softmax_all<T> : softmax_all<T>;
    run(scores, mask);
  });
}

void softmax_rows_back(const ScoreRows& weights, const Tensor& dropped, const Tensor& gradient) {
  with_type(gradient.scalar_type(), [&]<typename T>() {
    const auto run = has_wide_vectors() ? wide_softmax_all_back<T> : softmax_all_back<T>;
    run(weights, dropped.const_data_ptr<T>(), gradient.data_ptr<T>());
  });
}

void transpose_matrices(const Tensor& from, std::int64_t rows, std::int64_t columns,
                        const Tensor& to) {
  with_type(from.scalar_type(), [&]<typename T>() {
    const T* a = from.const_data_ptr<T>();
    T* __restrict b = to.data_ptr<T>();
    for (const T* end = a + from.numel(); a != end; a += rows * columns, b += rows * columns) {
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t r = 0; r < rows; ++r) b[c * rows + r] = a[r * columns + c];
      }
    }
  });
}

}  // namespace fedhpc
