# Script mode: writes OUTPUT with the commit and versions; see FedhpcBuildInfo.cmake.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
else()
  execute_process(COMMAND git -C "${SOURCE_DIR}" status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "-modified")
  endif()
endif()
if(NCCL_VERSION)
  set(nccl "nccl-${NCCL_VERSION}")
else()
  set(nccl "no nccl")
endif()
set(text "#pragma once
#define FEDHPC_BUILD_VERSION \"${VERSION}\"
#define FEDHPC_BUILD_COMMIT \"${commit}\"
#define FEDHPC_BUILD_TORCH \"${TORCH_VERSION}\"
#define FEDHPC_BUILD_NCCL \"${nccl}\"
#define FEDHPC_BUILD_TYPE \"${BUILD_TYPE}\"
#define FEDHPC_BUILD_MARCH \"${MARCH}\"
#define FEDHPC_BUILD_COMPILER \"${COMPILER}\"
")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" previous)
endif()
if(NOT "${previous}" STREQUAL "${text}")
  file(WRITE "${OUTPUT}" "${text}")
endif()
