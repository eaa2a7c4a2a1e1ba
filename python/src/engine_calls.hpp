#pragma once

#include <nanobind/nanobind.h>
#include <string>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc::python {

namespace nb = nanobind;

/// Keeps what Python code of a run has raised, the first one, until the run has come to its end.
/// Returns it in words: "ValueError: no such thing".
std::string keep_exception(const nb::python_error& raised);

/// Calls Python code from the engine, which runs without the interpreter's lock. What it raises
/// leaves as an Error; fedhpc.run raises the exception itself again.
template <typename Work>
decltype(auto) call_python(Work&& work) {
  const nb::gil_scoped_acquire lock;
  try {
    return std::forward<Work>(work)();
  } catch (const nb::python_error& raised) {
    throw Error(keep_exception(raised));
  }
}

/// Calls the engine from Python code, without the interpreter's lock, and returns what it gives.
template <typename Work>
auto without_lock(const Work& work) {
  const nb::gil_scoped_release unlocked;
  return work();
}

}  // namespace fedhpc::python
