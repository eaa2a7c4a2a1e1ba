#include "fedhpc/core/build_info.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"

namespace fedhpc::python {

void bind_running(nb::module_& core) {
  core.def("version", [] { return build_info().version; });
}

}  // namespace fedhpc::python
