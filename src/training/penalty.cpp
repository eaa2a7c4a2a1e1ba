#include "fedhpc/training/penalty.hpp"

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/penalty_pass.hpp"

namespace fedhpc {

namespace {

/// Calls work(c, begin, count) for the trainable columns of some rows.
template <typename Work>
void each_stretch(const Layout& layout, std::int64_t first, std::int64_t count, const Work& work) {
  const auto ranges = layout.ranges(Tag::Trainable);
  for (std::int64_t c = first; c < first + count; ++c) {
    for (const auto& [begin, end] : ranges) work(c, begin, end - begin);
  }
}

template <typename T>
const T* place(const Tensor& rows, std::int64_t c, std::int64_t column) {
  return rows.const_data_ptr<T>() + c * rows.stride(0) + column;
}

template <typename T>
const T* centre_of(const Penalty& penalty, std::int64_t c, std::int64_t column) {
  return penalty.mu == 0 ? nullptr : place<T>(penalty.centre.values, c, column);
}

PenaltyNumbers numbers_of(const Rows& rows, const Penalty& penalty) {
  require(penalty.mu == 0 || penalty.centre.values.sizes() == rows.values.sizes(),
          "a penalty has one centre per row");
  return {.mu = penalty.mu, .gamma = penalty.gamma, .rho = penalty.rho};
}

}  // namespace

void add_gradient_(const Tensor& gradients, const Rows& rows, const Penalty& penalty,
                   std::int64_t first, std::int64_t count) {
  require(gradients.sizes() == rows.values.sizes(), "one gradient per row");
  const PenaltyNumbers numbers = numbers_of(rows, penalty);
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    each_stretch(*rows.layout, first, count, [&](auto c, auto begin, auto length) {
      add_penalty_gradient_(gradients.data_ptr<T>() + c * gradients.stride(0) + begin,
                            place<T>(rows.values, c, begin), centre_of<T>(penalty, c, begin),
                            length, numbers);
    });
  });
}

void descend_(const Rows& rows, const Tensor& gradients, double lr, const Penalty& penalty,
              std::int64_t first, std::int64_t count) {
  require(!gradients.defined() || gradients.sizes() == rows.values.sizes(), "one gradient per row");
  const PenaltyNumbers numbers = numbers_of(rows, penalty);
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    each_stretch(*rows.layout, first, count, [&](auto c, auto begin, auto length) {
      penalised_step_(rows.values.data_ptr<T>() + c * rows.values.stride(0) + begin,
                      gradients.defined() ? place<T>(gradients, c, begin) : nullptr,
                      centre_of<T>(penalty, c, begin), length, lr, numbers);
    });
  });
}

void descend_(const Rows& rows, double lr, const Penalty& penalty) {
  descend_(rows, {}, lr, penalty, 0, rows.count());
}

std::vector<double> smoothed_l1(const Rows& rows, double rho) {
  std::vector<double> sums(static_cast<std::size_t>(rows.count()), 0);
  with_type(rows.values.scalar_type(), [&]<typename T>() {
    each_stretch(*rows.layout, 0, rows.count(), [&](auto c, auto begin, auto length) {
      sums[static_cast<std::size_t>(c)] +=
          smoothed_l1(place<T>(rows.values, c, begin), length, rho);
    });
  });
  return sums;
}

}  // namespace fedhpc
