#pragma once

#include <string>
#include <vector>

#include "fedhpc/core/configuration_source.hpp"

namespace fedhpc {

/// What acts of a configuration once its method is known, and what a person should know of the
/// rest.
struct ActingAssignments {
  std::vector<Assignment> assignments;
  std::vector<std::string> notes;  ///< sentences
};

/// The assignments that act with `method`. `algorithm.METHOD.KEY` is `algorithm.KEY` of that method
/// and acts only if it is chosen; on the same level it wins over the plain key. Plain keys of a
/// file that names another method are that method's and are left out, but those that mean the same
/// in all methods. A key given twice on the command line has its last value. What does not act is
/// checked as well: throws ConfigError for a method or key that there is not, or a value not
/// allowed.
ActingAssignments acting_assignments(const std::vector<Assignment>& given,
                                     const std::string& method);

}  // namespace fedhpc
