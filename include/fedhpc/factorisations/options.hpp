#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// The `model.*` keys of factorised layers.
struct FactorisationOptions {
  static constexpr const char* kAuto = "auto";
  static constexpr const char* kNone = "none";

  std::string name = kAuto;          ///< auto: the method's own; none: weights in full
  std::vector<std::int64_t> ranks;   ///< one for all factorised layers, or one each; empty: rate
  double compression = 2;            ///< full size over compressed size of each factorised layer
  std::vector<std::string> exclude;  ///< layers that stay full: names, or first and last

  void declare(OptionSet& options);

  /// Settles `name` for a method that works with `allowed` factorisations (its own first; empty:
  /// with none) and whether ranks or the rate count: those set at the higher level. Throws
  /// ConfigError for a factorisation the method cannot use, sizes without one, and rank and rate at
  /// one level.
  void resolve(const OptionSet& options, const std::string& method,
               const std::vector<std::string>& allowed);
  bool factorises() const { return name != kNone; }
};

}  // namespace fedhpc
