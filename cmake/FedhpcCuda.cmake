# CUDA's runtime and NCCL, for the module that a run on GPUs loads (src/gpu). The program itself links
# neither, so that it starts as fast and runs as well where there are none.
#
# Sets FEDHPC_CUDA_ENABLED and FEDHPC_NCCL_VERSION ("" without), and makes fedhpc_nccl.
set(FEDHPC_CUDA_ENABLED OFF)
set(FEDHPC_NCCL_VERSION "")
if(FEDHPC_CUDA STREQUAL "OFF")
  return()
endif()
find_package(CUDAToolkit QUIET)
# The toolkit's, the system's, or the wheel that tools/setup.sh --cuda fetches.
set(_hints ${CUDAToolkit_INCLUDE_DIRS} "${CUDAToolkit_LIBRARY_DIR}" "${FEDHPC_TORCH}/../nvidia/nccl"
           "$ENV{NCCL_HOME}")
find_path(FEDHPC_NCCL_INCLUDE_DIR nccl.h HINTS ${_hints} PATH_SUFFIXES include)
find_library(FEDHPC_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_hints} PATH_SUFFIXES lib lib64)
if(CUDAToolkit_FOUND AND FEDHPC_NCCL_INCLUDE_DIR AND FEDHPC_NCCL_LIBRARY)
  set(FEDHPC_CUDA_ENABLED ON)
  file(STRINGS "${FEDHPC_NCCL_INCLUDE_DIR}/nccl.h" _lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." FEDHPC_NCCL_VERSION)
  add_library(fedhpc_nccl SHARED IMPORTED GLOBAL)
  set_target_properties(fedhpc_nccl PROPERTIES
    IMPORTED_LOCATION "${FEDHPC_NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${FEDHPC_NCCL_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${FEDHPC_NCCL_INCLUDE_DIR}")
elseif(FEDHPC_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FEDHPC_CUDA=ON, but something is missing: CUDA toolkit: ${CUDAToolkit_FOUND}; "
                      "nccl.h: ${FEDHPC_NCCL_INCLUDE_DIR}; libnccl: ${FEDHPC_NCCL_LIBRARY}. "
                      "tools/setup.sh --cuda fetches NCCL.")
endif()
