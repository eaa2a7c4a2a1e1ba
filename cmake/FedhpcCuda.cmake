# CUDA for the modules that a run on GPUs loads (src/gpu): its runtime and NCCL for the one, nvcc,
# cuBLAS and LibTorch's CUDA library for the one with the kernels. The program itself links none of
# them, so that it starts as fast and runs as well where there are none.
#
# Sets FEDHPC_CUDA_ENABLED, FEDHPC_KERNELS_ENABLED and FEDHPC_NCCL_VERSION ("" without), and makes
# fedhpc_nccl and fedhpc_torch_cuda.
set(FEDHPC_CUDA_ENABLED OFF)
set(FEDHPC_KERNELS_ENABLED OFF)
set(FEDHPC_NCCL_VERSION "")
if(FEDHPC_CUDA STREQUAL "OFF")
  return()
endif()
find_package(CUDAToolkit QUIET)
# The wheel that LibTorch's own comes with and tools/setup.sh --cuda fetches, the toolkit's or the
# system's. A process has one libnccl.so.2, and LibTorch's CUDA library wants no older one than its own.
set(_hints "${FEDHPC_TORCH}/../nvidia/nccl" "$ENV{NCCL_HOME}" ${CUDAToolkit_INCLUDE_DIRS}
           "${CUDAToolkit_LIBRARY_DIR}")
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
if(NOT FEDHPC_CUDA_ENABLED)
  return()
endif()

# The kernels.
find_library(FEDHPC_TORCH_CUDA_LIBRARY torch_cuda HINTS "${FEDHPC_TORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
find_library(FEDHPC_C10_CUDA_LIBRARY c10_cuda HINTS "${FEDHPC_TORCH_LIBRARY_DIR}" NO_DEFAULT_PATH)
set(_missing "")
if(NOT CUDAToolkit_NVCC_EXECUTABLE)
  list(APPEND _missing "nvcc of the CUDA toolkit")
endif()
if(NOT TARGET CUDA::cublas)
  list(APPEND _missing "cuBLAS of the CUDA toolkit")
endif()
foreach(_header cusparse.h cusolverDn.h nvtx3/nvToolsExt.h)  # LibTorch's headers include the first two
  if(NOT EXISTS "${CUDAToolkit_INCLUDE_DIRS}/${_header}")
    find_path(FEDHPC_CUDA_HEADER ${_header} HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
    if(NOT FEDHPC_CUDA_HEADER)
      list(APPEND _missing "${_header} of the CUDA toolkit")
    endif()
    unset(FEDHPC_CUDA_HEADER)
  endif()
endforeach()
if(NOT FEDHPC_TORCH_CUDA_LIBRARY OR NOT FEDHPC_C10_CUDA_LIBRARY)
  list(APPEND _missing "libtorch_cuda and libc10_cuda of LibTorch in ${FEDHPC_TORCH}")
endif()
if(_missing)
  list(JOIN _missing ", " _missing)
  if(FEDHPC_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FEDHPC_CUDA=ON, but something is missing for the kernels: ${_missing}.")
  endif()
  message(STATUS "No kernels for GPUs: this build lacks ${_missing}.")
  return()
endif()
set(FEDHPC_KERNELS_ENABLED ON)

# Code for some generations of cards, each good for later ones of its generation, and PTX for those between them
# (11.x) and to come.
if(NOT DEFINED FEDHPC_CUDA_ARCHITECTURES)
  execute_process(COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" --list-gpu-code OUTPUT_VARIABLE _known)
  set(_architectures 80-real 90)
  foreach(_newer 100 120)
    if(_known MATCHES "sm_${_newer}[^0-9]")
      list(APPEND _architectures ${_newer})
    endif()
  endforeach()
  set(FEDHPC_CUDA_ARCHITECTURES "${_architectures}" CACHE STRING
      "Cards to compile kernels for, as in CMAKE_CUDA_ARCHITECTURES")
endif()
set(CMAKE_CUDA_ARCHITECTURES "${FEDHPC_CUDA_ARCHITECTURES}")
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "Compiler of host code for nvcc")
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc has it from CUDA 12, which CMake 3.25 does not know
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)

add_library(fedhpc_c10_cuda SHARED IMPORTED GLOBAL)
set_target_properties(fedhpc_c10_cuda PROPERTIES IMPORTED_LOCATION "${FEDHPC_C10_CUDA_LIBRARY}")
add_library(fedhpc_torch_cuda SHARED IMPORTED GLOBAL)
set_target_properties(fedhpc_torch_cuda PROPERTIES IMPORTED_LOCATION "${FEDHPC_TORCH_CUDA_LIBRARY}")
