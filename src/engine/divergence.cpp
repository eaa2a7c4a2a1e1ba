#include "fedhpc/engine/divergence.hpp"

#include <algorithm>
#include <cmath>

namespace fedhpc {

namespace {

constexpr double kLosses = 1e4;  // of a model that guesses

}  // namespace

Divergence::Divergence(std::int64_t classes)
    : limit_(kLosses * std::log(static_cast<double>(std::max<std::int64_t>(classes, 2)))) {}

void Divergence::look_at(std::int64_t round, std::span<const double> losses, bool evaluated) {
  // Not a number is not below the limit.
  const bool sound =
      std::all_of(losses.begin(), losses.end(), [&](double loss) { return loss <= limit_; });
  if (!sound && since_ == 0) since_ = round;
  if (sound && evaluated) since_ = 0;
}

}  // namespace fedhpc
