#pragma once

#include <string>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/core/configuration_source.hpp"

namespace fedhpc {

/// The assignments of a configuration that act once its method is known, and notes on the rest.
struct ActingAssignments {
  std::vector<Assignment> assignments;
  std::vector<std::string> notes;  ///< sentences
};

/// Returns the assignments that act with `method`. `algorithm.METHOD.KEY` is `algorithm.KEY` of
/// that method and acts only if it is chosen; on the same level it wins over the plain key. Plain
/// keys of a file that names another method are that method's. They are left out unless they mean
/// the same in all methods. A key given twice on the command line has its last value. What does not
/// act is checked as well. Throws ConfigError for a method or key that does not exist, or a value
/// not allowed.
ActingAssignments acting_assignments(const std::vector<Assignment>& given,
                                     const std::string& method);

/// Declares the keys of the method `name` behind those that `options` have. Throws ConfigError that
/// names the method for a key that cannot be declared, and, where all keys of a run are there, for a
/// condition on a key that is not.
void declare_keys(Algorithm& method, const std::string& name, OptionSet& options);

}  // namespace fedhpc
