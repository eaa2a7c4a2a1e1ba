#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"

#include "held.hpp"
#include "training.hpp"

namespace fedhpc::python {

/// A value of a method's key, which the option table refers to.
using OptionValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<std::string>, std::optional<std::int64_t>, std::optional<double>>;

/// The keys of one Python method. They stay where they are, as the option table refers to them.
struct MethodOptions {
  nb::handle method;  // its Python object, which owns this
  std::deque<OptionValue> values = {};
  std::optional<AveragingOptions> averaging = {};

  bool opens_links = false;  // uploads have a codec once it does

  /// Gives the method what averaging() has declared: its weighting and its codec.
  void set_averaging() const;
};

/// The option table as declare() and checks see it.
struct PyOptions {
  Held<OptionSet> table;
  MethodOptions* own;  // null in a check
};

}  // namespace fedhpc::python
