#pragma once

#include <memory>

#include "methods.hpp"

namespace fedhpc::python {

/// What evaluate() has handed over.
struct HandedOver {
  bool global = false;
  bool shared = false;
  bool personal = false;
  bool factors = false;
  bool edges = false;
};

/// An evaluation in its time.
struct PyEvaluation {
  Held<Evaluation> evaluation;
  std::shared_ptr<HandedOver> handed;
};

}  // namespace fedhpc::python
