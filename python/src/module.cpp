#include "bindings.hpp"

NB_MODULE(_core, core) {
  core.doc() = "The compiled part of fedhpc; its names are those of the package.";
  fedhpc::python::bind_running(core);
}
