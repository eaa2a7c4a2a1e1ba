#include "bindings.hpp"
#include "io/at_exit.hpp"

NB_MODULE(_core, core) {
  fedhpc::h5::close_nothing_at_exit();
  core.doc() = "The compiled part of fedhpc; its names are those of the package.";
  fedhpc::python::bind_running(core);
  fedhpc::python::bind_rows(core);
  fedhpc::python::bind_training(core);
  fedhpc::python::bind_rounds(core);
  fedhpc::python::bind_methods(core);
}
