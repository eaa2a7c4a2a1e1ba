# LibTorch as imported targets made from the libraries themselves.
#
# The package's own TorchConfig.cmake insists on a CUDA toolkit as soon as the wheel was built with
# CUDA, although libtorch_cpu needs only libcudart and libcupti at run time. These targets name what
# is really linked, so a machine without a toolkit builds and runs:
#
#   fedhpc::torch       c10, torch_cpu and the headers
#   fedhpc::torch_cuda  c10_cuda, torch_cuda (only when FEDHPC_CUDA is on)
#
# FEDHPC_TORCH (cache or environment variable) is a prefix with lib/ and include/; a wheel's `torch`
# folder is one, so is /usr with Debian's libtorch-dev.

if(NOT FEDHPC_TORCH)
  if(DEFINED ENV{FEDHPC_TORCH})
    set(FEDHPC_TORCH "$ENV{FEDHPC_TORCH}")
  else()
    set(FEDHPC_TORCH "${PROJECT_SOURCE_DIR}/.deps/site/torch")
  endif()
endif()
set(FEDHPC_TORCH "${FEDHPC_TORCH}" CACHE PATH "LibTorch prefix (lib/ and include/)")

find_library(FEDHPC_TORCH_CPU_LIBRARY torch_cpu HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH
             PATH_SUFFIXES x86_64-linux-gnu aarch64-linux-gnu)
find_library(FEDHPC_C10_LIBRARY c10 HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH
             PATH_SUFFIXES x86_64-linux-gnu aarch64-linux-gnu)
if(NOT FEDHPC_TORCH_CPU_LIBRARY OR NOT FEDHPC_C10_LIBRARY)
  message(FATAL_ERROR "LibTorch not found below ${FEDHPC_TORCH}.\n"
                      "Run tools/setup.sh, or set FEDHPC_TORCH to a prefix with lib/libtorch_cpu.so.")
endif()

get_filename_component(FEDHPC_TORCH_LIBRARY_DIR "${FEDHPC_TORCH_CPU_LIBRARY}" DIRECTORY)
add_library(fedhpc_c10 SHARED IMPORTED GLOBAL)
set_target_properties(fedhpc_c10 PROPERTIES IMPORTED_LOCATION "${FEDHPC_C10_LIBRARY}")
add_library(fedhpc_torch_cpu SHARED IMPORTED GLOBAL)
set_target_properties(fedhpc_torch_cpu PROPERTIES IMPORTED_LOCATION "${FEDHPC_TORCH_CPU_LIBRARY}")
# The wheel is linked against the new C++ ABI, and so is Debian's; its run-time libraries lie where
# its own RPATH finds them, so the link step need not resolve them.
add_library(fedhpc_torch INTERFACE)
add_library(fedhpc::torch ALIAS fedhpc_torch)
target_include_directories(fedhpc_torch SYSTEM INTERFACE
  "${FEDHPC_TORCH}/include" "${FEDHPC_TORCH}/include/torch/csrc/api/include")
target_link_libraries(fedhpc_torch INTERFACE fedhpc_torch_cpu fedhpc_c10)
target_link_options(fedhpc_torch INTERFACE "LINKER:--allow-shlib-undefined")

# Single products go straight to BLAS. The wheel's libtorch_cpu carries one (MKL) and exports it; a
# LibTorch linked against an outside BLAS does not, then that BLAS is linked.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES fedhpc_torch_cpu fedhpc_c10)
set(CMAKE_REQUIRED_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
check_cxx_source_compiles("extern \"C\" void sgemm_(); int main() { sgemm_(); }" FEDHPC_TORCH_HAS_BLAS)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(NOT FEDHPC_TORCH_HAS_BLAS)
  find_package(BLAS REQUIRED)
  target_link_libraries(fedhpc_torch INTERFACE BLAS::BLAS)
endif()

file(GLOB _version_files "${FEDHPC_TORCH}/version.py" "${FEDHPC_TORCH}/build-version")
set(FEDHPC_TORCH_VERSION "unknown")
foreach(_file IN LISTS _version_files)
  file(READ "${_file}" _text)
  if(_text MATCHES "([0-9]+\\.[0-9]+\\.[0-9]+[+a-z0-9]*)")
    set(FEDHPC_TORCH_VERSION "${CMAKE_MATCH_1}")
  endif()
endforeach()

# CUDA: libraries of the wheel next to libtorch_cpu, their dependencies from the toolkit or from the
# nvidia folder beside the wheel.
set(FEDHPC_CUDA_ENABLED OFF)
if(NOT FEDHPC_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  find_library(FEDHPC_TORCH_CUDA_LIBRARY torch_cuda HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH)
  find_library(FEDHPC_C10_CUDA_LIBRARY c10_cuda HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH)
  # libtorch_cuda loads these at start; a build that could not start is worse than one without CUDA.
  set(_cuda_runtime_missing "")
  foreach(_library cusparseLt nvshmem_host nccl)
    file(GLOB _found "${FEDHPC_TORCH}/../nvidia/*/lib/lib${_library}.so.*")
    if(NOT _found)
      list(APPEND _cuda_runtime_missing ${_library})
    endif()
  endforeach()
  if(CUDAToolkit_FOUND AND FEDHPC_TORCH_CUDA_LIBRARY AND FEDHPC_C10_CUDA_LIBRARY
     AND NOT _cuda_runtime_missing)
    set(FEDHPC_CUDA_ENABLED ON)
    add_library(fedhpc_torch_cuda INTERFACE)
    add_library(fedhpc::torch_cuda ALIAS fedhpc_torch_cuda)
    foreach(_name c10_cuda torch_cuda)
      string(TOUPPER ${_name} _upper)
      add_library(fedhpc_${_name}_library SHARED IMPORTED GLOBAL)
      set_target_properties(fedhpc_${_name}_library PROPERTIES
        IMPORTED_LOCATION "${FEDHPC_${_upper}_LIBRARY}")
      # torch_cuda registers its kernels when loaded; nothing refers to it by symbol.
      target_link_libraries(fedhpc_torch_cuda INTERFACE
        -Wl,--no-as-needed fedhpc_${_name}_library -Wl,--as-needed)
    endforeach()
    target_link_libraries(fedhpc_torch_cuda INTERFACE fedhpc_torch CUDA::cudart)
  elseif(FEDHPC_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FEDHPC_CUDA=ON, but something is missing: toolkit found: "
                        "${CUDAToolkit_FOUND}; libtorch_cuda: ${FEDHPC_TORCH_CUDA_LIBRARY}; "
                        "libraries absent: ${_cuda_runtime_missing}. Run tools/setup.sh --cuda.")
  endif()
endif()
