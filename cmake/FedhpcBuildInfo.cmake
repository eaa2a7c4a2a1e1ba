# Build information: a source file made anew at every build, touched only when its text changes, so
# that a commit relinks one object and recompiles nothing else.
set(FEDHPC_BUILD_INFO_SOURCE "${PROJECT_BINARY_DIR}/generated/build_info_values.hpp")
# The header by which plug-ins know for what they are built.
set(FEDHPC_VERSION_HEADER "${PROJECT_BINARY_DIR}/generated/fedhpc/version.hpp")
add_custom_target(fedhpc_build_info
  COMMAND "${CMAKE_COMMAND}" -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DOUTPUT=${FEDHPC_BUILD_INFO_SOURCE}
          -DVERSION_HEADER=${FEDHPC_VERSION_HEADER}
          -DVERSION=${FEDHPC_VERSION} -DTORCH_VERSION=${FEDHPC_TORCH_VERSION}
          -DNCCL_VERSION=${FEDHPC_NCCL_VERSION}
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DMARCH=${FEDHPC_MARCH}
          "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
          -P "${PROJECT_SOURCE_DIR}/cmake/write_build_info.cmake"
  BYPRODUCTS "${FEDHPC_BUILD_INFO_SOURCE}" "${FEDHPC_VERSION_HEADER}" VERBATIM)
