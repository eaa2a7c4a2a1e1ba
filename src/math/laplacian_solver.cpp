#include "math/laplacian_solver.hpp"

#include <Eigen/SparseCholesky>
#include <Eigen/SparseCore>
#include <algorithm>
#include <array>
#include <cmath>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kWidth = kTileColumns;
// Conjugate gradients, restarted warm, are done after about as many iterations. A factor that costs
// no more is taken in their place.
constexpr std::int64_t kIterationsWorth = 8;
// Beyond this the factor is not even tried: it would take minutes, and be full.
constexpr std::int64_t kTriedNodes = 20000;
constexpr std::int64_t kMostIterations = 500;

// float32 loses what is small beside a long sum: so many rows are added up in it.
constexpr std::int64_t kBlock = 64;

/// A number of each column of a tile.
template <typename T>
using Lanes = std::array<T, kWidth>;

/// Sums of one number per column, of blocks of rows.
class ColumnSums {
 public:
  template <typename T>
  void add(const Lanes<T>& block) {
    for (std::size_t k = 0; k < kWidth; ++k) sums_[k] += static_cast<double>(block[k]);
  }
  double operator[](std::int64_t k) const { return sums_[static_cast<std::size_t>(k)]; }

 private:
  Lanes<double> sums_{};
};

using Matrix = Eigen::SparseMatrix<double, Eigen::ColMajor, std::int64_t>;

/// Tells the fill before it computes it.
class Cholesky
    : public Eigen::SimplicialLLT<Matrix, Eigen::Lower, Eigen::AMDOrdering<std::int64_t>> {
 public:
  std::int64_t fill() const { return m_matrix.nonZeros(); }
};

}  // namespace

LaplacianSolver::LaplacianSolver(const SimilarityGraph& graph, double c)
    : nodes_(graph.nodes), c_(c), starts_(static_cast<std::size_t>(graph.nodes) + 1) {
  require(c >= 0, "the matrix is positive definite");
  for (const auto& [i, j] : graph.edges) {
    require(0 <= i && i < nodes_ && 0 <= j && j < nodes_ && i != j, "edges join two nodes");
    ++starts_[static_cast<std::size_t>(i) + 1];
    ++starts_[static_cast<std::size_t>(j) + 1];
  }
  for (std::size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<std::int64_t> next(starts_.begin(), starts_.end() - 1);
  neighbours_.resize(2 * graph.edges.size());
  for (const auto& [i, j] : graph.edges) {
    neighbours_[static_cast<std::size_t>(next[static_cast<std::size_t>(i)]++)] = j;
    neighbours_[static_cast<std::size_t>(next[static_cast<std::size_t>(j)]++)] = i;
  }
  if (nodes_ <= kTriedNodes) factorise(graph);
}

void LaplacianSolver::factorise(const SimilarityGraph& graph) {
  std::vector<Eigen::Triplet<double, std::int64_t>> entries;
  for (std::int64_t i = 0; i < nodes_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    entries.emplace_back(i, i, 1 + c_ * static_cast<double>(starts_[at + 1] - starts_[at]));
  }
  for (const auto& [i, j] : graph.edges) entries.emplace_back(std::max(i, j), std::min(i, j), -c_);
  Matrix matrix(nodes_, nodes_);
  matrix.setFromTriplets(entries.begin(), entries.end());
  Cholesky cholesky;
  cholesky.analyzePattern(matrix);
  // The diagonal is in the lower triangle; a step of conjugate gradients passes over both
  // triangles and six vectors.
  const std::int64_t step = 2 * static_cast<std::int64_t>(graph.edges.size()) + 7 * nodes_;
  if (2 * cholesky.fill() > kIterationsWorth * step) return;
  cholesky.factorize(matrix);
  if (cholesky.info() != Eigen::Success) return;
  const Matrix& lower = cholesky.matrixL().nestedExpression();
  factor_.order.resize(static_cast<std::size_t>(nodes_));
  for (std::int64_t i = 0; i < nodes_; ++i) {
    factor_.order[static_cast<std::size_t>(cholesky.permutationP().indices()[i])] = i;
  }
  factor_.starts.push_back(0);
  for (std::int64_t j = 0; j < nodes_; ++j) {
    for (Matrix::InnerIterator entry(lower, j); entry; ++entry) {
      if (entry.row() == j) {
        factor_.diagonal.push_back(1 / entry.value());
      } else {
        factor_.rows.push_back(entry.row());
        factor_.values.push_back(entry.value());
      }
    }
    factor_.starts.push_back(static_cast<std::int64_t>(factor_.rows.size()));
  }
}

template <>
std::vector<float>& LaplacianSolver::space<float>() {
  return floats_;
}
template <>
std::vector<double>& LaplacianSolver::space<double>() {
  return doubles_;
}

template <typename T>
std::int64_t LaplacianSolver::solve_(T* x, const T* b, double reduction) {
  if (!is_direct()) return iterate_(x, b, reduction);
  solve_directly_(x, b);
  return 0;
}

template <typename T>
void LaplacianSolver::solve_directly_(T* x, const T* b) {
  std::vector<T>& y = space<T>();
  y.resize(static_cast<std::size_t>(nodes_ * kWidth));
  for (std::int64_t i = 0; i < nodes_; ++i) {
    std::copy_n(b + factor_.order[static_cast<std::size_t>(i)] * kWidth, kWidth,
                y.data() + i * kWidth);
  }
  const auto below = [&](std::int64_t j, const auto& work) {
    for (std::int64_t e = factor_.starts[static_cast<std::size_t>(j)];
         e < factor_.starts[static_cast<std::size_t>(j) + 1]; ++e) {
      work(y.data() + factor_.rows[static_cast<std::size_t>(e)] * kWidth,
           static_cast<T>(factor_.values[static_cast<std::size_t>(e)]));
    }
  };
  for (std::int64_t j = 0; j < nodes_; ++j) {  // F y = b
    T* own = y.data() + j * kWidth;
    const auto inverse = static_cast<T>(factor_.diagonal[static_cast<std::size_t>(j)]);
    for (std::int64_t k = 0; k < kWidth; ++k) own[k] *= inverse;
    below(j, [own](T* other, T value) {
      for (std::int64_t k = 0; k < kWidth; ++k) other[k] -= value * own[k];
    });
  }
  for (std::int64_t j = nodes_ - 1; j >= 0; --j) {  // F^T x = y
    T* own = y.data() + j * kWidth;
    below(j, [own](const T* other, T value) {
      for (std::int64_t k = 0; k < kWidth; ++k) own[k] -= value * other[k];
    });
    const auto inverse = static_cast<T>(factor_.diagonal[static_cast<std::size_t>(j)]);
    for (std::int64_t k = 0; k < kWidth; ++k) own[k] *= inverse;
  }
  for (std::int64_t i = 0; i < nodes_; ++i) {
    std::copy_n(y.data() + i * kWidth, kWidth,
                x + factor_.order[static_cast<std::size_t>(i)] * kWidth);
  }
}

template <typename Work>
void LaplacianSolver::each_block(const Work& work) const {
  for (std::int64_t first = 0; first < nodes_; first += kBlock) {
    work(first, std::min(nodes_, first + kBlock));
  }
}

template <typename T>
T LaplacianSolver::preconditioner(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  return static_cast<T>(1 / (1 + c_ * static_cast<double>(starts_[at + 1] - starts_[at])));
}

template <typename T, typename Then>
void LaplacianSolver::multiply(const T* __restrict p, T* __restrict q, const Then& then) const {
  const auto c = static_cast<T>(c_);
  for (std::int64_t i = 0; i < nodes_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Lanes<T> sum{};
    for (std::int64_t e = starts_[at]; e < starts_[at + 1]; ++e) {
      const T* other = p + neighbours_[static_cast<std::size_t>(e)] * kWidth;
      for (std::int64_t k = 0; k < kWidth; ++k) sum[k] += other[k];
    }
    const T diagonal = 1 + c * static_cast<T>(starts_[at + 1] - starts_[at]);
    for (std::int64_t k = 0; k < kWidth; ++k) {
      q[i * kWidth + k] = diagonal * p[i * kWidth + k] - c * sum[k];
    }
    then(i);
  }
}

template <typename T>
std::int64_t LaplacianSolver::iterate_(T* __restrict x, const T* __restrict b, double reduction) {
  const std::int64_t count = nodes_ * kWidth;
  std::vector<T>& room = space<T>();
  room.resize(static_cast<std::size_t>(3 * count));
  T* __restrict r = room.data();              // residuals
  T* __restrict p = room.data() + count;      // directions
  T* __restrict q = room.data() + 2 * count;  // their images
  ColumnSums right;
  ColumnSums rr;
  ColumnSums ry;  // y: preconditioned residuals, never kept
  multiply(x, q, [](std::int64_t) {});
  each_block([&](std::int64_t first, std::int64_t last) {
    Lanes<T> of_b{};
    Lanes<T> of_r{};
    Lanes<T> of_ry{};
    for (std::int64_t i = first; i < last; ++i) {
      const T inverse = preconditioner<T>(i);
      for (std::int64_t k = 0; k < kWidth; ++k) {
        const std::int64_t at = i * kWidth + k;
        r[at] = b[at] - q[at];
        p[at] = inverse * r[at];
        of_b[k] += b[at] * b[at];
        of_r[k] += r[at] * r[at];
        of_ry[k] += r[at] * p[at];
      }
    }
    right.add(of_b);
    rr.add(of_r);
    ry.add(of_ry);
  });
  const ColumnSums first_rr = rr;
  constexpr double kFloor = sizeof(T) == 8 ? 1e-13 : 2e-7;
  for (std::int64_t iteration = 0; iteration < kMostIterations; ++iteration) {
    bool done = true;
    for (std::int64_t k = 0; k < kWidth; ++k) {
      done = done &&
             !(rr[k] > reduction * reduction * first_rr[k] && rr[k] > kFloor * kFloor * right[k]);
    }
    if (done) return iteration;
    ColumnSums pq;
    Lanes<T> of_pq{};
    multiply(p, q, [&](std::int64_t i) {
      for (std::int64_t k = 0; k < kWidth; ++k) of_pq[k] += p[i * kWidth + k] * q[i * kWidth + k];
      if (i % kBlock == kBlock - 1 || i == nodes_ - 1) {
        pq.add(of_pq);
        of_pq = {};
      }
    });
    Lanes<T> alpha{};
    for (std::int64_t k = 0; k < kWidth; ++k) {
      if (pq[k] > 0) alpha[k] = static_cast<T>(ry[k] / pq[k]);
    }
    const ColumnSums before = ry;
    rr = {};
    ry = {};
    each_block([&](std::int64_t first, std::int64_t last) {
      Lanes<T> of_r{};
      Lanes<T> of_ry{};
      for (std::int64_t i = first; i < last; ++i) {
        const T inverse = preconditioner<T>(i);
        for (std::int64_t k = 0; k < kWidth; ++k) {
          const std::int64_t at = i * kWidth + k;
          x[at] += alpha[k] * p[at];
          r[at] -= alpha[k] * q[at];
          of_r[k] += r[at] * r[at];
          of_ry[k] += r[at] * (inverse * r[at]);
        }
      }
      rr.add(of_r);
      ry.add(of_ry);
    });
    Lanes<T> beta{};
    for (std::int64_t k = 0; k < kWidth; ++k) {
      if (before[k] > 0) beta[k] = static_cast<T>(ry[k] / before[k]);
    }
    for (std::int64_t i = 0; i < nodes_; ++i) {
      const T inverse = preconditioner<T>(i);
      for (std::int64_t k = 0; k < kWidth; ++k) {
        const std::int64_t at = i * kWidth + k;
        p[at] = inverse * r[at] + beta[k] * p[at];
      }
    }
  }
  return kMostIterations;
}

template std::int64_t LaplacianSolver::solve_<float>(float*, const float*, double);
template std::int64_t LaplacianSolver::solve_<double>(double*, const double*, double);

}  // namespace fedhpc
