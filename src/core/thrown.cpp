#include "core/thrown.hpp"

#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <typeinfo>

#include <c10/util/Exception.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::string what_was_thrown() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return one_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return one_line(error.what());
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    int failed = 0;
    char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &failed);
    const std::string text = failed == 0 ? name : type->name();
    std::free(name);
    return concat("a value of type ", text, " was thrown, which is no std::exception");
  }
}

}  // namespace fedhpc
