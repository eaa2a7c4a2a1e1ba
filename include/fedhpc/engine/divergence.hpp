#pragma once

#include <cstdint>
#include <span>

namespace fedhpc {

/// Whether a run has diverged: whether a loss is not finite or above 10^4 ln(classes), ten thousand
/// times that of guessing. A later evaluation all of whose losses are below ends it.
class Divergence {
 public:
  explicit Divergence(std::int64_t classes);

  /// Takes in what is known of a round: its losses, and whether those of an evaluation are among
  /// them.
  void look_at(std::int64_t round, std::span<const double> losses, bool evaluated);
  std::int64_t since() const { return since_; }  ///< the first round of it; 0: there is none

 private:
  double limit_;
  std::int64_t since_ = 0;
};

}  // namespace fedhpc
