#pragma once

#include "methods.hpp"

namespace fedhpc::python {

/// An evaluation in its time.
struct PyEvaluation {
  Held<Evaluation> evaluation;
};

}  // namespace fedhpc::python
