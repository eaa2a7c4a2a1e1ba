#pragma once

#include <cstdint>
#include <span>

namespace fedhpc {

/// Decides whether a run has diverged: a loss is not finite or above ten thousand times that of
/// guessing, which is ln(classes) for cross entropy. Divergence ends with a later evaluation all of whose losses are below.
class Divergence {
 public:
  /// `since`: the first diverged round of a run that goes on; 0: none.
  explicit Divergence(double guessing, std::int64_t since = 0);

  /// Looks at the losses of a round; `evaluated`: those of an evaluation are among them.
  void look_at(std::int64_t round, std::span<const double> losses, bool evaluated);
  std::int64_t since() const { return since_; }  ///< the first diverged round; 0: none

 private:
  double limit_;
  std::int64_t since_ = 0;
};

}  // namespace fedhpc
