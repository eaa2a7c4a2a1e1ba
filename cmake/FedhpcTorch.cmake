# LibTorch as imported targets made from the libraries themselves.
#
# The package's own TorchConfig.cmake insists on a CUDA toolkit as soon as the wheel was built with
# CUDA, although libtorch_cpu needs only libcudart and libcupti at run time. These targets name what
# is really linked, so a machine without a toolkit builds and runs:
#
#   fedhpc::torch       c10, torch_cpu and the headers
#
# FEDHPC_TORCH (cache or environment variable) is a prefix with lib/ and include/; a wheel's `torch`
# folder is one, so is /usr with Debian's libtorch-dev.

if(TARGET fedhpc_torch)  # by another find_package of the same project
  return()
endif()
set(_told "${FEDHPC_TORCH}")
if(NOT FEDHPC_TORCH)
  if(NOT "$ENV{FEDHPC_TORCH}" STREQUAL "")
    get_filename_component(FEDHPC_TORCH "$ENV{FEDHPC_TORCH}" ABSOLUTE)
  else()
    set(FEDHPC_TORCH "${PROJECT_SOURCE_DIR}/.deps/site/torch")
  endif()
endif()
set(FEDHPC_TORCH "${FEDHPC_TORCH}" CACHE PATH "LibTorch prefix (lib/ and include/)")
# What was found in another prefix is looked for anew.
if(FEDHPC_TORCH_LOOKED_IN AND NOT FEDHPC_TORCH STREQUAL FEDHPC_TORCH_LOOKED_IN)
  foreach(_found FEDHPC_TORCH_CPU_LIBRARY FEDHPC_C10_LIBRARY FEDHPC_TORCH_HAS_BLAS FEDHPC_TORCH_CUDA_LIBRARY
                 FEDHPC_C10_CUDA_LIBRARY FEDHPC_NCCL_INCLUDE_DIR FEDHPC_NCCL_LIBRARY)
    unset(${_found} CACHE)
  endforeach()
endif()
set(FEDHPC_TORCH_LOOKED_IN "${FEDHPC_TORCH}" CACHE INTERNAL "LibTorch prefix of the libraries found")

find_library(FEDHPC_TORCH_CPU_LIBRARY torch_cpu HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH
             PATH_SUFFIXES x86_64-linux-gnu aarch64-linux-gnu)
find_library(FEDHPC_C10_LIBRARY c10 HINTS "${FEDHPC_TORCH}/lib" NO_DEFAULT_PATH
             PATH_SUFFIXES x86_64-linux-gnu aarch64-linux-gnu)
if(NOT FEDHPC_TORCH_CPU_LIBRARY OR NOT FEDHPC_C10_LIBRARY)
  string(CONCAT _reason "LibTorch not found below ${FEDHPC_TORCH}.\n"
                        "Run tools/setup.sh, or set FEDHPC_TORCH to a prefix with lib/libtorch_cpu.so.")
  if(NOT _told)  # the environment may tell of one by the next time
    unset(FEDHPC_TORCH CACHE)
  endif()
  if(CMAKE_FIND_PACKAGE_NAME)  # whoever looks for fedhpc may do without
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${_reason}")
    return()
  endif()
  message(FATAL_ERROR "${_reason}")
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
# The wheel is made by a GCC that leaves `enable_if` of a template parameter out of a function's symbol. So does Clang
# to version 17; later ones put it in and would not find at::TensorBase::const_data_ptr.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  target_compile_options(fedhpc_torch INTERFACE -fclang-abi-compat=17)
endif()

# Where what is installed looks for LibTorch, when it does not lie beside it: where it was built with. A wheel goes to
# other machines; there the modules for GPUs take that of the Python package torch.
set(FEDHPC_TORCH_ELSEWHERE "${FEDHPC_TORCH_LIBRARY_DIR}")
set(FEDHPC_TORCH_FOR_MODULES "${FEDHPC_TORCH_LIBRARY_DIR}")
if(SKBUILD)
  set(FEDHPC_TORCH_ELSEWHERE "")
  set(FEDHPC_TORCH_FOR_MODULES "$ORIGIN/../../../torch/lib")
endif()

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
