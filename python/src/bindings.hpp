#pragma once

#include <nanobind/nanobind.h>

namespace fedhpc::python {

namespace nb = nanobind;

/// Each adds what its file binds to fedhpc._core.
void bind_running(nb::module_& core);
void bind_rows(nb::module_& core);
void bind_rounds(nb::module_& core);
void bind_methods(nb::module_& core);

}  // namespace fedhpc::python
