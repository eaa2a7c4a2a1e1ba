#include "standin/products.hpp"

#include <bit>
#include <vector>

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/blas_product.hpp"

// BLAS, column-major. LibTorch's library carries it or links one that does.
extern "C" {
void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const float* alpha, const float* a, const int* lda, const float* b,
            const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const double* alpha, const double* a, const int* lda, const double* b,
            const int* ldb, const double* beta, double* c, const int* ldc);
}

namespace fedhpc::standin {

namespace {

/// To the nearest number with `bits` fewer bits of fraction, to the even one of two.
float rounded(float x, int bits) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if (bits == 0 || (word & 0x7f800000U) == 0x7f800000U) return x;  // infinite or NaN
  const std::uint32_t half = (1U << (bits - 1)) - 1 + ((word >> bits) & 1U);
  return std::bit_cast<float>((word + half) >> bits << bits);
}
double rounded(double x, int /*bits*/) { return x; }

int bits_to_lose(Precision precision) {
  switch (precision) {
    case Precision::Fp32:
      return 0;
    case Precision::Tf32:
      return 13;
    case Precision::Bf16:
      return 16;
  }
  return 0;
}

enum class Backwards { None, Rows, Columns };

/// op(X) of client c, [rows, columns], contiguous.
template <typename T>
std::vector<T> factor(const DeviceMatrices& of, std::int64_t c, std::int64_t rows,
                      std::int64_t columns, int bits, Backwards backwards) {
  const T* first = static_cast<const T*>(of.data) + c * of.stack_stride;
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  auto* value = values.data();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t i = backwards == Backwards::Rows ? rows - 1 - row : row;
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t j = backwards == Backwards::Columns ? columns - 1 - column : column;
      const T* x = of.transposed ? first + j * of.row_stride + i : first + i * of.row_stride + j;
      *value++ = rounded(*x, bits);
    }
  }
  return values;
}

void gemm(int m, int n, int k, float alpha, const float* a, const float* b, float beta, float* c,
          int ldc) {
  sgemm_("N", "N", &m, &n, &k, &alpha, a, &m, b, &k, &beta, c, &ldc);
}
void gemm(int m, int n, int k, double alpha, const double* a, const double* b, double beta,
          double* c, int ldc) {
  dgemm_("N", "N", &m, &n, &k, &alpha, a, &m, b, &k, &beta, c, &ldc);
}

template <typename T>
void product(const DeviceProduct& of) {
  const int bits = bits_to_lose(of.precision);
  // A device's library orders sums by the whole call.
  const bool backwards = of.count % 2 == 0;
  for (std::int64_t c = 0; c < of.count; ++c) {
    T* result = static_cast<T*>(of.result.data) + c * of.result.stack_stride;
    if (of.inner == 0) {  // BLAS takes no factor of no columns
      for (std::int64_t i = 0; i < of.rows * of.columns; ++i) {
        T& value = result[i / of.columns * of.result.row_stride + i % of.columns];
        value = of.beta == 0 ? T{0} : static_cast<T>(of.beta) * value;
      }
      continue;
    }
    const std::vector<T> a = factor<T>(of.a, c, of.rows, of.inner, bits,
                                       backwards ? Backwards::Columns : Backwards::None);
    const std::vector<T> b = factor<T>(of.b, c, of.inner, of.columns, bits,
                                       backwards ? Backwards::Rows : Backwards::None);
    // The row-major product is the column-major one of the transposes.
    gemm(static_cast<int>(of.columns), static_cast<int>(of.rows), static_cast<int>(of.inner),
         static_cast<T>(of.alpha), b.data(), a.data(), static_cast<T>(of.beta), result,
         static_cast<int>(of.rows > 1 ? of.result.row_stride : of.columns));
  }
}

}  // namespace

void product_on_host(const DeviceProduct& of) {
  if (of.count == 0 || of.rows == 0 || of.columns == 0) return;
  BlasProduct(of).check();
  of.type == DType::Float32 ? product<float>(of) : product<double>(of);
}

}  // namespace fedhpc::standin
