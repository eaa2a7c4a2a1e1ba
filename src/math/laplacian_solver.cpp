#include "math/laplacian_solver.hpp"

#include <Eigen/SparseCholesky>
#include <Eigen/SparseCore>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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

using Matrix = Eigen::SparseMatrix<double, Eigen::ColMajor, std::int64_t>;

/// Tells the fill before it computes it.
class Cholesky
    : public Eigen::SimplicialLLT<Matrix, Eigen::Lower, Eigen::AMDOrdering<std::int64_t>> {
 public:
  std::int64_t fill() const { return m_matrix.nonZeros(); }
};

// float32 loses what is small beside a long sum: so many rows are added up in it.
constexpr std::int64_t kBlock = 64;

/// Sums of one number per column over all nodes.
template <typename T>
class ColumnSums {
 public:
  void add(const TileRow<T>& block) {
    for (std::int64_t k = 0; k < kWidth; ++k) {
      of_[static_cast<std::size_t>(k)] += static_cast<double>(block[k]);
    }
  }
  double operator[](std::size_t column) const { return of_[column]; }

 private:
  std::array<double, kWidth> of_{};
};

/// a / b by columns, 0 where b is not above 0.
template <typename T>
TileRow<T> quotients(const ColumnSums<T>& a, const ColumnSums<T>& b) {
  std::array<T, kWidth> numbers{};
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    if (b[k] > 0) numbers[k] = static_cast<T>(a[k] / b[k]);
  }
  return TileRow<T>::load(numbers.data());
}

/// Calls work(i, rows of sums) for each of N nodes and adds their sums up.
template <typename T, std::size_t sums, typename Work>
void each_node(std::int64_t nodes, ColumnSums<T>* const (&totals)[sums], const Work& work) {
  for (std::int64_t first = 0; first < nodes; first += kBlock) {
    TileRow<T> of_block[sums];
    for (TileRow<T>& sum : of_block) sum = TileRow<T>(T(0));
    const std::int64_t last = std::min(nodes, first + kBlock);
    for (std::int64_t i = first; i < last; ++i) work(i, of_block);
    for (std::size_t s = 0; s < sums; ++s) totals[s]->add(of_block[s]);
  }
}

}  // namespace

LaplacianSolver::LaplacianSolver(const SimilarityGraph& graph, double c)
    : nodes_(graph.nodes), c_(c), starts_(static_cast<std::size_t>(graph.nodes) + 1) {
  require(c >= 0, "the matrix is positive definite");
  require(nodes_ <= std::numeric_limits<std::int32_t>::max(), "nodes are counted in 32 bits");
  for (const auto& [i, j] : graph.edges) {
    require(0 <= i && i < nodes_ && 0 <= j && j < nodes_ && i != j, "edges join two nodes");
    ++starts_[static_cast<std::size_t>(i) + 1];
    ++starts_[static_cast<std::size_t>(j) + 1];
  }
  for (std::size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<std::int64_t> next(starts_.begin(), starts_.end() - 1);
  neighbours_.resize(2 * graph.edges.size());
  for (const auto& [i, j] : graph.edges) {
    neighbours_[static_cast<std::size_t>(next[static_cast<std::size_t>(i)]++)] =
        static_cast<std::int32_t>(j);
    neighbours_[static_cast<std::size_t>(next[static_cast<std::size_t>(j)]++)] =
        static_cast<std::int32_t>(i);
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
TileRows<float>& LaplacianSolver::space<float>() {
  return floats_;
}
template <>
TileRows<double>& LaplacianSolver::space<double>() {
  return doubles_;
}

template <typename T>
std::int64_t LaplacianSolver::improve_(T* x, T* r, double reduction) {
  if (!is_direct()) return iterate_(x, r, reduction);
  solve_directly_(x, r);
  return 0;
}

template <typename T>
void LaplacianSolver::solve_directly_(T* x, const T* r) {
  using Row = TileRow<T>;
  TileRows<T>& y = space<T>();
  y.resize(static_cast<std::size_t>(nodes_ * kWidth));
  const auto place = [&](std::int64_t i) {
    return factor_.order[static_cast<std::size_t>(i)] * kWidth;
  };
  for (std::int64_t i = 0; i < nodes_; ++i) Row::load(r + place(i)).store(y.data() + i * kWidth);
  const auto below = [&](std::int64_t j, const auto& work) {
    for (std::int64_t e = factor_.starts[static_cast<std::size_t>(j)];
         e < factor_.starts[static_cast<std::size_t>(j) + 1]; ++e) {
      work(y.data() + factor_.rows[static_cast<std::size_t>(e)] * kWidth,
           static_cast<T>(factor_.values[static_cast<std::size_t>(e)]));
    }
  };
  const auto inverse = [&](std::int64_t j) {
    return static_cast<T>(factor_.diagonal[static_cast<std::size_t>(j)]);
  };
  for (std::int64_t j = 0; j < nodes_; ++j) {  // F y = r
    const Row own = inverse(j) * Row::load(y.data() + j * kWidth);
    own.store(y.data() + j * kWidth);
    below(j, [&own](T* other, T value) { (Row::load(other) - value * own).store(other); });
  }
  for (std::int64_t j = nodes_ - 1; j >= 0; --j) {  // F^T y = y
    Row own = Row::load(y.data() + j * kWidth);
    below(j, [&own](const T* other, T value) { own -= value * Row::load(other); });
    (inverse(j) * own).store(y.data() + j * kWidth);
  }
  for (std::int64_t i = 0; i < nodes_; ++i) {
    T* row = x + place(i);
    (Row::load(row) + Row::load(y.data() + i * kWidth)).store(row);
  }
}

template <typename T>
T LaplacianSolver::preconditioner(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  return static_cast<T>(1 / (1 + c_ * static_cast<double>(starts_[at + 1] - starts_[at])));
}

template <typename T>
TileRow<T> LaplacianSolver::image_of(const T* p, std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  TileRow<T> sum(T(0));
  for (std::int64_t e = starts_[at]; e < starts_[at + 1]; ++e) {
    sum += TileRow<T>::load(p + neighbours_[static_cast<std::size_t>(e)] * kWidth);
  }
  const auto c = static_cast<T>(c_);
  const T diagonal = 1 + c * static_cast<T>(starts_[at + 1] - starts_[at]);
  return diagonal * TileRow<T>::load(p + i * kWidth) - c * sum;
}

template <typename T>
std::int64_t LaplacianSolver::iterate_(T* x, T* r, double reduction) {
  using Row = TileRow<T>;
  const std::int64_t count = nodes_ * kWidth;
  TileRows<T>& room = space<T>();
  room.resize(static_cast<std::size_t>(2 * count));
  T* p = room.data();          // directions
  T* q = room.data() + count;  // their images
  ColumnSums<T> xx;
  ColumnSums<T> rr;
  ColumnSums<T> ry;  // y: preconditioned residuals, never kept
  ColumnSums<T> before;
  each_node(nodes_, {&xx, &rr, &ry}, [&](std::int64_t i, auto& sums) {
    const Row own = Row::load(x + i * kWidth);
    const Row residual = Row::load(r + i * kWidth);
    const Row direction = preconditioner<T>(i) * residual;
    direction.store(p + i * kWidth);
    sums[0] += own * own;
    sums[1] += residual * residual;
    sums[2] += residual * direction;
  });
  constexpr double kFloor = sizeof(T) == 8 ? 1e-13 : 2e-7;
  std::array<double, kWidth> end{};  // squares at which columns are done
  for (std::size_t k = 0; k < end.size(); ++k) {
    end[k] = std::max(reduction * reduction * rr[k], kFloor * kFloor * xx[k]);
  }
  for (std::int64_t iteration = 0;; ++iteration) {
    bool done = true;
    for (std::size_t k = 0; k < end.size(); ++k) done = done && !(rr[k] > end[k]);
    if (done || iteration == kMostIterations) return iteration;
    if (iteration > 0) {
      const Row beta = quotients(ry, before);
      for (std::int64_t i = 0; i < nodes_; ++i) {
        const Row y = preconditioner<T>(i) * Row::load(r + i * kWidth);
        (y + beta * Row::load(p + i * kWidth)).store(p + i * kWidth);
      }
    }
    ColumnSums<T> pq;
    each_node(nodes_, {&pq}, [&](std::int64_t i, auto& sums) {
      const Row image = image_of(p, i);
      image.store(q + i * kWidth);
      sums[0] += Row::load(p + i * kWidth) * image;
    });
    const Row alpha = quotients(ry, pq);
    before = ry;
    rr = {};
    ry = {};
    each_node(nodes_, {&rr, &ry}, [&](std::int64_t i, auto& sums) {
      (Row::load(x + i * kWidth) + alpha * Row::load(p + i * kWidth)).store(x + i * kWidth);
      const Row residual = Row::load(r + i * kWidth) - alpha * Row::load(q + i * kWidth);
      residual.store(r + i * kWidth);
      sums[0] += residual * residual;
      sums[1] += preconditioner<T>(i) * (residual * residual);
    });
  }
}

template std::int64_t LaplacianSolver::improve_<float>(float*, float*, double);
template std::int64_t LaplacianSolver::improve_<double>(double*, double*, double);

}  // namespace fedhpc
