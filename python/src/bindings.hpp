#pragma once

#include <nanobind/nanobind.h>

namespace fedhpc::python {

namespace nb = nanobind;

/// Each adds what its file binds to fedhpc._core.
void bind_running(nb::module_& core);
void bind_rows(nb::module_& core);
void bind_layout(nb::module_& core);  // of bind_rows
void bind_parts(nb::module_& core);   // of bind_rows
void bind_training(nb::module_& core);
void bind_codecs(nb::module_& core);  // of bind_training
void bind_maps(nb::module_& core);    // of bind_training
void bind_stores(nb::module_& core);
void bind_rounds(nb::module_& core);
void bind_blocks(nb::module_& core);    // of bind_rounds
void bind_edges(nb::module_& core);     // of bind_rounds
void bind_coupling(nb::module_& core);  // of bind_rounds
void bind_methods(nb::module_& core);
void bind_options(nb::module_& core);     // of bind_methods
void bind_evaluation(nb::module_& core);  // of bind_methods

}  // namespace fedhpc::python
