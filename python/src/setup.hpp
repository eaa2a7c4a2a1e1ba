#pragma once

#include "methods.hpp"

namespace fedhpc::python {

/// What a method starts from, in its time.
struct PySetup {
  Held<const Setup> setup;
  MethodSessionPtr session;
};

/// A walk over a method's state, in its time.
struct PyState {
  Held<StateVisitor> state;
};

void bind_setup(nb::module_& core);

}  // namespace fedhpc::python
