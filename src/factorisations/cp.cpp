#include "fedhpc/factorisations/cp.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

namespace {

template <typename T>
MatrixStack matrix(const T* data, std::int64_t rows, std::int64_t columns) {
  return {.data = const_cast<T*>(data), .rows = rows, .columns = columns, .row_stride = columns};
}

/// How many of the first dimensions stand for the rows of the matrix K L^T: as many as make the two
/// Khatri-Rao products shortest.
std::size_t split(const std::vector<std::int64_t>& sizes) {
  std::size_t best = 1;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t before = 1;
  const std::int64_t all =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  for (std::size_t k = 1; k < sizes.size(); ++k) {
    before *= sizes[k - 1];
    if (before + all / before >= shortest) continue;
    shortest = before + all / before;
    best = k;
  }
  return best;
}

/// a <- scale (a - b)
template <typename T>
void subtract_(T* __restrict a, const T* __restrict b, std::int64_t count, T scale) {
  for (std::int64_t i = 0; i < count; ++i) a[i] = scale * (a[i] - b[i]);
}

/// out[(i, j), r] = a[i, r] b[j, r]
template <typename T>
void khatri_rao_product(const T* a, std::int64_t rows_a, const T* b, std::int64_t rows_b,
                        std::int64_t rank, T* out) {
  for (std::int64_t i = 0; i < rows_a; ++i) {
    for (std::int64_t j = 0; j < rows_b; ++j, out += rank) {
      for (std::int64_t r = 0; r < rank; ++r) out[r] = a[i * rank + r] * b[j * rank + r];
    }
  }
}

}  // namespace

Cp::Cp(WeightShape shape, std::int64_t rank, const FactorForm& form)
    : shape_(std::move(shape)), rank_(rank), arithmetic_{.summation = form.summation} {
  const std::size_t order = shape_.sizes.size();
  require(order >= 2, "a tensor of order 2 or more is decomposed");
  require(rank_ >= 1, "a decomposition has a rank of 1 or more");
  columns_.resize(order);
  std::int64_t next = 0;
  for (std::size_t n = 1; n <= order; ++n) {
    const std::size_t dimension = order - n;
    factors_.push_back({concat("A", n), {size(dimension), rank_}});
    columns_[dimension] = next;
    next += factors_.back().count();
  }
  const std::size_t rows = split(shape_.sizes);
  for (std::size_t d = 0; d < order; ++d) (d < rows ? left_ : right_).dimensions.push_back(d);
}

std::int64_t Cp::rank_of(const WeightShape& shape, CompressionRate rate) {
  const std::int64_t sum = std::accumulate(shape.sizes.begin(), shape.sizes.end(), std::int64_t{0});
  const double rank = static_cast<double>(shape.count()) / (rate.value * static_cast<double>(sum));
  return std::max<std::int64_t>(1, std::lround(rank));
}

double Cp::initial_deviation() const {
  // A sum of R products of N independent normals of variance sigma^2 has variance R sigma^(2N).
  const double variance = 2.0 / static_cast<double>(shape_.fan_in);
  return std::pow(variance / static_cast<double>(rank_),
                  0.5 / static_cast<double>(shape_.sizes.size()));
}

std::int64_t Cp::length(const Group& group) const {
  std::int64_t length = 1;
  for (const std::size_t dimension : group.dimensions) length *= size(dimension);
  return length;
}

void Cp::reserve(at::ScalarType type) {
  if (left_.gradient.defined() && left_.gradient.scalar_type() == type) return;
  residual_ = at::empty({length(left_) * std::min(tile_width(), length(right_))}, type);
  for (Group* group : {&left_, &right_}) {
    group->gradient = at::empty({length(*group), rank_}, type);
    group->products.clear();
    std::int64_t rows = size(group->dimensions.front());
    for (std::size_t k = 1; k < group->dimensions.size(); ++k) {
      rows *= size(group->dimensions[k]);
      group->products.push_back(at::empty({rows, rank_}, type));
    }
  }
}

template <typename T>
const T* Cp::khatri_rao(Group& group, const T* u) {
  const T* product = u + column(group.dimensions.front());
  std::int64_t rows = size(group.dimensions.front());
  for (std::size_t k = 1; k < group.dimensions.size(); ++k) {
    const std::size_t dimension = group.dimensions[k];
    T* out = group.products[k - 1].template data_ptr<T>();
    khatri_rao_product(product, rows, u + column(dimension), size(dimension), rank_, out);
    product = out;
    rows *= size(dimension);
  }
  return product;
}

template <typename T>
void Cp::contract(Group& group, const T* u, T* du) {
  // From the last dimension to the first: with G [prefix, i, R], the prefix's Khatri-Rao product P
  // and the dimension's factor A, dA[i] = sum over the prefix of P * G[., i], and what is left for
  // the prefix is sum over i of A[i] * G[., i], which takes the place of G's first rows.
  T* g = group.gradient.template data_ptr<T>();
  std::int64_t rows = length(group);
  for (std::size_t k = group.dimensions.size(); k-- > 1;) {
    const std::size_t dimension = group.dimensions[k];
    const std::int64_t count = size(dimension);
    rows /= count;
    const T* prefix = k == 1 ? u + column(group.dimensions.front())
                             : group.products[k - 2].template const_data_ptr<T>();
    const T* a = u + column(dimension);
    T* da = du + column(dimension);
    std::fill_n(da, count * rank_, T{0});
    for (std::int64_t p = 0; p < rows; ++p) {
      const T* of_prefix = prefix + p * rank_;
      T* rest = g + p * rank_;  // at or before the first row read
      for (std::int64_t i = 0; i < count; ++i) {
        const T* row = g + (p * count + i) * rank_;
        for (std::int64_t r = 0; r < rank_; ++r) {
          const T value = row[r];
          da[i * rank_ + r] += of_prefix[r] * value;
          rest[r] = a[i * rank_ + r] * value + (i == 0 ? T{0} : rest[r]);
        }
      }
    }
  }
  std::copy_n(g, rows * rank_, du + column(group.dimensions.front()));
}

std::int64_t Cp::tile_width() const {
  constexpr std::int64_t kValues = 20000;  // stay in the nearest caches
  constexpr std::int64_t kStep = 16;
  return std::max<std::int64_t>(kStep, kValues / length(left_) / kStep * kStep);
}

template <typename Work>
void Cp::each_tile(const Work& work) const {
  const std::int64_t width = tile_width();
  for (std::int64_t first = 0; first < length(right_); first += width) {
    work(first, std::min(width, length(right_) - first));
  }
}

template <typename T>
void Cp::compose(const T* k, const T* l, std::int64_t columns, T* w, std::int64_t stride) const {
  MatrixStack out = matrix(w, length(left_), columns);
  out.row_stride = stride;
  batched_product(c10::CppTypeToScalarType<T>::value, 1, 1, matrix(k, length(left_), rank_),
                  Transpose::No, matrix(l, columns, rank_), Transpose::Yes, 0, out);
}

template <typename T>
void Cp::contract_all(const T* u, T* du) {
  for (Group* group : {&left_, &right_}) {
    if (group->dimensions.size() > 1) contract(*group, u, du);
  }
}

void Cp::expand_(const Tensor& u, const Tensor& w) {
  require(u.size(1) == count() && w.size(1) == shape_.count(), "factors and weights of the layer");
  if (on_device(u)) return expand_on_device_(u, w);
  reserve(u.scalar_type());
  with_type(u.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < u.size(0); ++c) {
      const T* of_client = u.const_data_ptr<T>() + c * u.stride(0);
      const T* k = khatri_rao(left_, of_client);
      const T* l = khatri_rao(right_, of_client);
      T* out = w.data_ptr<T>() + c * w.stride(0);
      each_tile([&](std::int64_t first, std::int64_t columns) {
        compose(k, l + first * rank_, columns, out + first, length(right_));
      });
    }
  });
}

template <typename T>
T* Cp::product_of(Group& group, T* du) {
  // A group of one dimension needs no contraction: its product is the factor's gradient.
  return group.dimensions.size() == 1 ? du + column(group.dimensions.front())
                                      : group.gradient.template data_ptr<T>();
}

template <typename T>
void Cp::multiply(const MatrixStack& e, const T* k, const T* l, std::int64_t first, T* du) {
  const at::ScalarType type = c10::CppTypeToScalarType<T>::value;
  batched_product(type, 1, 1, e, Transpose::No, matrix(l + first * rank_, e.columns, rank_),
                  Transpose::No, first == 0 ? 0 : 1,
                  matrix(product_of(left_, du), length(left_), rank_));
  batched_product(type, 1, 1, e, Transpose::Yes, matrix(k, length(left_), rank_), Transpose::No, 0,
                  matrix(product_of(right_, du) + first * rank_, e.columns, rank_));
}

void Cp::pullback_(const Tensor& u, const Tensor& dw, const Tensor& du) {
  require(u.size(1) == count() && du.size(1) == count() && dw.size(1) == shape_.count(),
          "factors and weights of the layer");
  if (on_device(u)) return pullback_on_device_(u, dw, du);
  reserve(u.scalar_type());
  with_type(u.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < u.size(0); ++c) {
      const T* of_client = u.const_data_ptr<T>() + c * u.stride(0);
      T* out = du.data_ptr<T>() + c * du.stride(0);
      const T* e = dw.const_data_ptr<T>() + c * dw.stride(0);
      multiply(matrix(e, length(left_), length(right_)), khatri_rao(left_, of_client),
               khatri_rao(right_, of_client), 0, out);
      contract_all(of_client, out);
    }
  });
}

void Cp::distance_gradient_(const Tensor& u, const Tensor& w, double scale, const Tensor& du) {
  require(u.size(1) == count() && du.size(1) == count() && w.size(1) == shape_.count(),
          "factors and weights of the layer");
  if (on_device(u)) return distance_gradient_on_device_(u, w, scale, du);
  reserve(u.scalar_type());
  with_type(u.scalar_type(), [&]<typename T>() {
    T* residual = residual_.data_ptr<T>();
    for (std::int64_t c = 0; c < u.size(0); ++c) {
      const T* of_client = u.const_data_ptr<T>() + c * u.stride(0);
      const T* k = khatri_rao(left_, of_client);
      const T* l = khatri_rao(right_, of_client);
      const T* target = w.const_data_ptr<T>() + c * w.stride(0);
      T* out = du.data_ptr<T>() + c * du.stride(0);
      // scale ([[A]] - w), tile by tile, so that it never leaves the cache. [[A]] is rounded as
      // expand_() does: where w is what that has given, the residual is 0 to the last bit.
      each_tile([&](std::int64_t first, std::int64_t columns) {
        compose(k, l + first * rank_, columns, residual, columns);
        for (std::int64_t i = 0; i < length(left_); ++i) {
          subtract_(residual + i * columns, target + i * length(right_) + first, columns,
                    static_cast<T>(scale));
        }
        multiply(matrix(residual, length(left_), columns), k, l, first, out);
      });
      contract_all(of_client, out);
    }
  });
}

}  // namespace fedhpc
