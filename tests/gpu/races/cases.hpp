#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/kernels/all_kernels.hpp"

// Calls of every kernel, on host memory without LibTorch, which ThreadSanitizer does not know.

namespace fedhpc::test {

/// What a case's kernels read and write: the same numbers whenever it is made anew. Rows begin at multiples of 16 bytes,
/// or none does.
class Memory {
 public:
  Memory(DType type, bool aligned) : type_(type), aligned_(aligned) {}

  DType type() const { return type_; }

  /// Numbers of the case's type, between -1 and 1.
  void* numbers(std::int64_t count) {
    const std::int64_t gap = aligned_ ? 0 : 1;
    return type_ == DType::Float32 ? keep(some<float>(count + gap)) + gap
                                   : static_cast<void*>(keep(some<double>(count + gap)) + gap);
  }
  double* doubles(std::int64_t count) { return keep(some<double>(count)); }

  /// Memory with these values.
  template <typename Value>
  Value* keep(std::vector<Value> values) {
    const auto all = std::make_shared<std::vector<Value>>(std::move(values));
    readers_.push_back([all](std::vector<double>& found) {
      if constexpr (std::is_arithmetic_v<Value>) {
        for (const Value& value : *all) found.push_back(static_cast<double>(value));
      }
    });
    return all->data();
  }

  DeviceColumns columns(std::int64_t rows, std::int64_t width) {
    const std::int64_t stride = row_of(width);
    return {numbers(rows * stride), stride};
  }
  DeviceStack stack(std::int64_t clients, std::int64_t batch, std::int64_t width) {
    const std::int64_t stride = row_of(width);
    return {.data = numbers(clients * batch * stride),
            .clients = clients,
            .batch = batch,
            .width = width,
            .client_stride = batch * stride,
            .sample_stride = stride};
  }
  /// op(X) is [rows, columns].
  DeviceMatrices matrices(std::int64_t count, std::int64_t rows, std::int64_t columns,
                          bool transposed = false) {
    if (transposed) std::swap(rows, columns);
    const std::int64_t stride = row_of(columns);
    return {numbers(count * rows * stride), rows * stride, stride, transposed};
  }

  /// All that is there by now, number by number.
  std::vector<double> all() const {
    std::vector<double> found;
    for (const auto& read : readers_) read(found);
    return found;
  }

 private:
  std::int64_t row_of(std::int64_t width) const {
    return aligned_ ? (width + 3) / 4 * 4 : width + 3;
  }
  template <typename T>
  std::vector<T> some(std::int64_t count) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<T>(std::sin(0.7 * ++made_)));
    return values;
  }

  DType type_;
  bool aligned_;
  double made_ = 0;
  std::vector<std::function<void(std::vector<double>&)>> readers_;
};

struct Case {
  const char* name;
  void (*run)(AllKernels&, Memory&);
};

/// Products, sums and steps over rows, losses.
std::vector<Case> math_cases();
/// Layers and their ways back.
std::vector<Case> layer_cases();

}  // namespace fedhpc::test
