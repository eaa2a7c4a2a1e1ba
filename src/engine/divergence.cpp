#include "fedhpc/engine/divergence.hpp"

#include <algorithm>
#include <cmath>

namespace fedhpc {

namespace {

constexpr double kLosses = 1e4;  // of a model that guesses

}  // namespace

Divergence::Divergence(double guessing, std::int64_t since)
    : limit_(kLosses * guessing), since_(since) {}

void Divergence::look_at(std::int64_t round, std::span<const double> losses, bool evaluated) {
  // Not a number is not below the limit, which is infinite where targets' squares are.
  const bool sound = std::all_of(losses.begin(), losses.end(), [&](double loss) {
    return loss <= limit_ && std::isfinite(loss);
  });
  if (!sound && since_ == 0) since_ = round;
  if (sound && evaluated) since_ = 0;
}

}  // namespace fedhpc
