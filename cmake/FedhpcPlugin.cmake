# fedhpc_add_plugin(NAME source...)
#
# Builds libNAME.so, which `run.plugin = libNAME.so` loads: its sources have one FEDHPC_PLUGIN (fedhpc/plugin.hpp).
function(fedhpc_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE fedhpc::plugin)
  set_target_properties(${name} PROPERTIES PREFIX lib SUFFIX .so CXX_EXTENSIONS OFF)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(${name} PRIVATE -O3)  # nobody measures an unoptimised method
  endif()
endfunction()
