#include "fedhpc/math/products.hpp"

#include <cstdlib>
#include <vector>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/rounded_factors.hpp"
#include "fedhpc/math/device_kernels.hpp"

#include "math/small_products.hpp"

// BLAS, column-major. LibTorch's library carries it or links one that does.
extern "C" {
void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const float* alpha, const float* a, const int* lda, const float* b,
            const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const double* alpha, const double* a, const int* lda, const double* b,
            const int* ldb, const double* beta, double* c, const int* ldc);
}

namespace fedhpc {

namespace {

void gemm(char ta, char tb, int m, int n, int k, float alpha, const float* a, int lda,
          const float* b, int ldb, float beta, float* c, int ldc) {
  sgemm_(&ta, &tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

void gemm(char ta, char tb, int m, int n, int k, double alpha, const double* a, int lda,
          const double* b, int ldb, double beta, double* c, int ldc) {
  dgemm_(&ta, &tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

/// MKL, which LibTorch's convolutions call too, takes sums in an order that hangs on where the factors
/// lie in memory, and so on the block, unless it is told otherwise before its first product.
[[maybe_unused]] const int kOneOrderOfSums = setenv("MKL_CBWR", "AUTO", /*overwrite=*/0);

constexpr std::int64_t kSmallBatch = 64;
constexpr std::int64_t kNarrow = 640;  // columns

/// Own kernels take the products of a local step: a batch of up to 64 rows against one client's
/// weights is over before BLAS has packed its factors; and narrow ones, where rows of B come again
/// from the cache (factors of a decomposition).
bool by_own_kernel(Transpose transpose_a, Transpose transpose_b, std::int64_t inner,
                   const MatrixStack& result) {
  const bool narrow = result.columns <= kNarrow && transpose_b == Transpose::No;
  if (narrow) return true;
  if (transpose_a == Transpose::Yes) return transpose_b == Transpose::No && inner <= kSmallBatch;
  return result.rows <= kSmallBatch;
}

/// op(A) as the kernels of op(A) B read it.
template <typename T>
Factor<T> factor_of(const T* a, std::int64_t stride, Transpose transpose) {
  return transpose == Transpose::Yes ? Factor<T>{a, 1, stride} : Factor<T>{a, stride, 1};
}

template <typename T>
void own_product(const Target<T>& c, const T* a, std::int64_t a_stride, Transpose transpose_a,
                 const T* b, std::int64_t b_stride, Transpose transpose_b, std::int64_t inner) {
  if (transpose_b == Transpose::Yes) {
    small_product_transposed(a, a_stride, b, b_stride, inner, c);
  } else {
    small_product(factor_of(a, a_stride, transpose_a), b, b_stride, inner, c);
  }
}

/// Matrix c of a stack as factors of this precision, in memory of its own.
std::vector<float> rounded(const MatrixStack& stack, std::int64_t c, Precision precision) {
  const int bits = missing_bits(precision);
  const float* matrix = static_cast<const float*>(stack.data) + c * stack.stack_stride;
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(stack.rows * stack.columns));
  for (std::int64_t i = 0; i < stack.rows; ++i) {
    const float* row = matrix + i * stack.row_stride;
    for (std::int64_t k = 0; k < stack.columns; ++k) {
      values.push_back(without_bits(row[k], bits));
    }
  }
  return values;
}

/// Products on the host as a device takes them.
void product_of_rounded(std::int64_t count, double alpha, const MatrixStack& a,
                        Transpose transpose_a, const MatrixStack& b, Transpose transpose_b,
                        double beta, const MatrixStack& result, Precision precision) {
  const auto one = [](std::vector<float>& values, const MatrixStack& stack) {
    return MatrixStack{values.data(), 0, stack.rows, stack.columns, stack.columns};
  };
  for (std::int64_t c = 0; c < count; ++c) {
    std::vector<float> left = rounded(a, c, precision);
    std::vector<float> right = rounded(b, c, precision);
    MatrixStack out = result;
    out.data = static_cast<float*>(result.data) + c * result.stack_stride;
    batched_product(at::kFloat, 1, alpha, one(left, a), transpose_a, one(right, b), transpose_b,
                    beta, out);
  }
}

DeviceMatrices device_matrices(const MatrixStack& stack, Transpose transpose) {
  return {.data = stack.data,
          .stack_stride = stack.stack_stride,
          .row_stride = stack.row_stride,
          .transposed = transpose == Transpose::Yes};
}

void product_on_device(DeviceProduct product, Summation summation) {
  if (summation != Summation::Reproducible) {
    return device_kernels<MathKernels>().product(product);
  }
  require(product.a.row_stride < DeviceProduct::kTooLong &&
              product.b.row_stride < DeviceProduct::kTooLong,
          "rows of a product in order are short enough");
  const std::int64_t parts = DeviceProduct::parts_of(product.inner);
  Tensor room;
  if (parts > 1) {
    room = at::empty({product.count, parts, product.rows, product.columns},
                     at::TensorOptions(scalar_type(product.type)).device(current_cuda_device()));
    product.parts = room.data_ptr();
  }
  device_kernels<MathKernels>().product_in_order(product);
}

/// The number of products in a sum; throws unless all three fit together.
std::int64_t inner_size(const MatrixStack& a, Transpose transpose_a, const MatrixStack& b,
                        Transpose transpose_b, const MatrixStack& result) {
  const std::int64_t inner = transpose_a == Transpose::No ? a.columns : a.rows;
  require((transpose_a == Transpose::No ? a.rows : a.columns) == result.rows,
          "product: rows agree");
  require((transpose_b == Transpose::No ? b.columns : b.rows) == result.columns,
          "product: columns agree");
  require((transpose_b == Transpose::No ? b.rows : b.columns) == inner,
          "product: inner sizes agree");
  require(a.on_device == result.on_device && b.on_device == result.on_device,
          "product: factors and result lie in the same memory");
  return inner;
}

}  // namespace

Tensor as_factors(const Tensor& values, Precision precision) {
  if (precision == Precision::Fp32 || values.scalar_type() != at::kFloat) return values;
  const int bits = missing_bits(precision);
  const Tensor from = values.contiguous();
  Tensor factors = at::empty(from.sizes(), from.options());
  const float* source = from.const_data_ptr<float>();
  float* target = factors.data_ptr<float>();
  for (std::int64_t i = 0; i < from.numel(); ++i) target[i] = without_bits(source[i], bits);
  return factors;
}

MatrixStack matrices_of(const Tensor& stack) {
  return {.data = stack.data_ptr(),
          .stack_stride = stack.stride(0),
          .rows = stack.size(1),
          .columns = stack.size(2),
          .row_stride = stack.stride(1),
          .on_device = on_device(stack)};
}

MatrixStack matrices_in(const Tensor& rows, std::int64_t column, std::int64_t height,
                        std::int64_t width) {
  return {.data = static_cast<char*>(rows.data_ptr()) +
                  column * static_cast<std::int64_t>(rows.itemsize()),
          .stack_stride = rows.stride(0),
          .rows = height,
          .columns = width,
          .row_stride = width,
          .on_device = on_device(rows)};
}

void batched_product(at::ScalarType type, std::int64_t count, double alpha, const MatrixStack& a,
                     Transpose transpose_a, const MatrixStack& b, Transpose transpose_b,
                     double beta, const MatrixStack& result, const Arithmetic& arithmetic) {
  const Precision precision = arithmetic.precision;
  const std::int64_t inner = inner_size(a, transpose_a, b, transpose_b, result);
  if (result.on_device) {
    return product_on_device({.type = type == at::kDouble ? DType::Float64 : DType::Float32,
                              .precision = precision,
                              .count = count,
                              .rows = result.rows,
                              .columns = result.columns,
                              .inner = inner,
                              .alpha = alpha,
                              .beta = beta,
                              .a = device_matrices(a, transpose_a),
                              .b = device_matrices(b, transpose_b),
                              .result = device_matrices(result, Transpose::No)},
                             arithmetic.summation);
  }
  if (precision != Precision::Fp32 && type == at::kFloat) {
    return product_of_rounded(count, alpha, a, transpose_a, b, transpose_b, beta, result,
                              precision);
  }
  const bool own = by_own_kernel(transpose_a, transpose_b, inner, result);
  with_type(type, [&]<typename T>() {
    for (std::int64_t c = 0; c < count; ++c) {
      const T* left = static_cast<const T*>(a.data) + c * a.stack_stride;
      const T* right = static_cast<const T*>(b.data) + c * b.stack_stride;
      T* out = static_cast<T*>(result.data) + c * result.stack_stride;
      if (own) {
        own_product<T>({.data = out,
                        .rows = result.rows,
                        .columns = result.columns,
                        .row_stride = result.row_stride,
                        .alpha = static_cast<T>(alpha),
                        .beta = static_cast<T>(beta)},
                       left, a.row_stride, transpose_a, right, b.row_stride, transpose_b, inner);
        continue;
      }
      // A row-major product is the column-major product of the transposes: C^T = op(B)^T op(A)^T.
      gemm(transpose_b == Transpose::No ? 'N' : 'T', transpose_a == Transpose::No ? 'N' : 'T',
           static_cast<int>(result.columns), static_cast<int>(result.rows), static_cast<int>(inner),
           static_cast<T>(alpha), right, static_cast<int>(b.row_stride), left,
           static_cast<int>(a.row_stride), static_cast<T>(beta), out,
           static_cast<int>(result.row_stride));
    }
  });
}

bool pulled_product_(at::ScalarType type, std::int64_t count, double lr, double mu,
                     const MatrixStack& a, Transpose transpose_a, const MatrixStack& b,
                     const MatrixStack& centre, const MatrixStack& result,
                     const Arithmetic& arithmetic) {
  const std::int64_t inner = inner_size(a, transpose_a, b, Transpose::No, result);
  require(centre.rows == result.rows && centre.columns == result.columns &&
              centre.row_stride == result.row_stride,
          "product: centres lie as the result does");
  const bool rounded = arithmetic.precision != Precision::Fp32 && type == at::kFloat;
  if (result.on_device || rounded || !by_own_kernel(transpose_a, Transpose::No, inner, result)) {
    return false;
  }
  with_type(type, [&]<typename T>() {
    for (std::int64_t c = 0; c < count; ++c) {
      const auto of = [c](const MatrixStack& stack) {
        return static_cast<T*>(stack.data) + c * stack.stack_stride;
      };
      small_product(factor_of<T>(of(a), a.row_stride, transpose_a), of(b), b.row_stride, inner,
                    PulledTarget<T>{.data = of(result),
                                    .rows = result.rows,
                                    .columns = result.columns,
                                    .row_stride = result.row_stride,
                                    .centre = of(centre),
                                    .lr = static_cast<T>(lr),
                                    .mu = static_cast<T>(mu)});
    }
  });
  return true;
}

}  // namespace fedhpc
