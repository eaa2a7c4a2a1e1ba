#pragma once

#include <memory>
#include <set>
#include <string>

#include "methods.hpp"
#include "options.hpp"

namespace fedhpc::python {

/// What a method starts from, in its time.
struct PySetup {
  Held<const Setup> setup;
  MethodSessionPtr session;
  const MethodOptions* options;
};

/// A walk over a method's state, in its time.
struct PyState {
  Held<StateVisitor> state;
  std::shared_ptr<std::set<std::string>> names;  // visited so far

  /// The walk, to visit something by a name of its own.
  StateVisitor& visit(const std::string& verb, const std::string& name) const;
};

void bind_setup(nb::module_& core);

}  // namespace fedhpc::python
