#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine_calls.hpp"
#include "rounds.hpp"

namespace fedhpc::python {

/// Sets an error of Python: fedhpc.errors.KIND with this sentence, which may quote any bytes.
void set_error(const char* kind, const std::string& sentence);

/// Throws ConfigError or DataError for fedhpc's own exceptions in Python, with their sentences.
void throw_as_own(const nb::python_error& raised);

/// Throws an error of these bindings as Python's exception.
[[noreturn]] void throw_as_python(const nb::builtin_exception& thrown);

/// Calls Python code of a method, as call_python does; its ConfigError and DataError stay what they
/// are.
template <typename Work>
decltype(auto) in_method(Work&& work) {
  return call_python([&]() -> decltype(auto) {
    try {
      return std::forward<Work>(work)();
    } catch (const nb::python_error& raised) {
      throw_as_own(raised);
      throw;
    } catch (const nb::builtin_exception& thrown) {
      throw_as_python(thrown);
    }
  });
}

/// Throws ValueError unless `name` can stand in a result file and on a command line.
void require_word(const std::string& verb, const std::string& name);

/// Keeps an object of Python for the engine, which may let go of it on any thread, and after the
/// interpreter's end.
std::shared_ptr<nb::object> kept_object(const nb::object& object);

}  // namespace fedhpc::python
