#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// A number of each of C rows, float64, where the rows lie. In host memory arithmetic is a loop;
/// elsewhere it is enqueued, and nobody waits for it before values(). What a row gets depends on
/// its own numbers alone, to the last bit.
class RowNumbers {
 public:
  RowNumbers() = default;
  /// Numbers of the host, for rows anywhere.
  explicit RowNumbers(std::vector<double> values) : here_(std::move(values)) {}
  /// Numbers [C], float64, beside rows that do not lie in host memory.
  explicit RowNumbers(Tensor there);

  std::int64_t count() const;  ///< C
  /// The numbers, in host memory: the host waits for them once.
  const std::vector<double>& values() const&;
  std::vector<double> values() && { return std::as_const(*this).values(); }
  /// A column [C, 1] of the type of `rows`, where they lie. The host does not wait.
  Tensor column(const Tensor& rows) const;

  friend RowNumbers operator+(double x, const RowNumbers& numbers);
  friend RowNumbers operator*(double x, const RowNumbers& numbers);
  friend RowNumbers operator/(double x, const RowNumbers& numbers);
  friend RowNumbers operator/(const RowNumbers& numbers, double x);
  friend RowNumbers operator*(const RowNumbers& a, const RowNumbers& b);
  friend RowNumbers operator/(const RowNumbers& a, const RowNumbers& b);
  friend RowNumbers sqrt(const RowNumbers& numbers);
  friend RowNumbers exp(const RowNumbers& numbers);
  /// The numbers below `most`, and `most` in the place of others.
  friend RowNumbers at_most(const RowNumbers& numbers, double most);
  /// The numbers where those of `of` are above 0, else 0.
  friend RowNumbers where_positive(const RowNumbers& of, const RowNumbers& numbers);

 private:
  template <typename Work>
  static RowNumbers each(const RowNumbers& numbers, const Work& work);
  template <typename Work>
  static RowNumbers each(const RowNumbers& a, const RowNumbers& b, const Work& work);

  Tensor there_;                      // [C], undefined for numbers of the host
  mutable std::vector<double> here_;  // fetched where they are asked for
};

/// rows[c] <- factors[c] rows[c]
void scale_(const Rows& rows, const RowNumbers& factors);

/// rows[c] += factors[c] other[c] on the columns that carry `tag`. A row of factor 0 stays.
void add_columns_(const Rows& rows, const RowNumbers& factors, const Rows& other, Tag tag);

/// rows[c] += factors[c] (a[c] - b[c]) on those columns. A row of factor 0 stays.
void add_difference_(const Rows& rows, const RowNumbers& factors, const Rows& a, const Rows& b,
                     Tag tag);

/// Numbers of the host, [C, n], in the type of `rows` and where they lie. The host does not wait.
Tensor beside(const Rows& rows, const Tensor& numbers);

/// Rows [C, P] in float64 in host memory, for what is computed outside of models: the same memory
/// where they are that already.
Tensor float64_values(const Rows& rows);

}  // namespace fedhpc
