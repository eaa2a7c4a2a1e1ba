#pragma once

#include <nanobind/nanobind.h>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc::python {

namespace nb = nanobind;

/// Keeps what Python code of a run has raised, the first one, until the run has come to its end.
void keep_exception(const nb::python_error& raised);

/// Calls Python code from the engine, which runs without the interpreter's lock. What it raises
/// leaves as an Error whose text is the traceback; fedhpc.run raises the exception itself again.
template <typename Work>
decltype(auto) call_python(Work&& work) {
  const nb::gil_scoped_acquire lock;
  try {
    return std::forward<Work>(work)();
  } catch (const nb::python_error& raised) {
    keep_exception(raised);
    throw Error(raised.what());
  }
}

}  // namespace fedhpc::python
