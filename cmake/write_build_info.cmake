# Script mode: writes OUTPUT with the commit and versions, and VERSION_HEADER; see FedhpcBuildInfo.cmake.
# Sources unpacked inside another project's repository have no commit of their own.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse --show-toplevel --short=12 HEAD
                OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
string(REGEX REPLACE "\n[^\n]*$" "" top "${said}")
string(REGEX REPLACE "^.*\n" "" commit "${said}")
file(REAL_PATH "${SOURCE_DIR}" source)
if(failed OR NOT top STREQUAL source)
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
# Whether a plug-in fits follows from the headers it was compiled with, down to the last letter.
file(GLOB_RECURSE headers LIST_DIRECTORIES false "${SOURCE_DIR}/include/*")
list(SORT headers)
set(sums "")
foreach(header IN LISTS headers)
  file(SHA256 "${header}" sum)
  file(RELATIVE_PATH name "${SOURCE_DIR}" "${header}")
  string(APPEND sums "${name} ${sum}\n")
endforeach()
string(SHA256 sum "${sums}")
string(SUBSTRING "${sum}" 0 12 sum)
set(version_text "#pragma once

// Made by the build.
#define FEDHPC_VERSION \"${VERSION}\"
#define FEDHPC_HEADERS \"${sum}\"  // of all public headers
")

function(write_where_changed file text)
  set(previous "")
  if(EXISTS "${file}")
    file(READ "${file}" previous)
  endif()
  if(NOT "${previous}" STREQUAL "${text}")
    file(WRITE "${file}" "${text}")
  endif()
endfunction()
write_where_changed("${OUTPUT}" "${text}")
write_where_changed("${VERSION_HEADER}" "${version_text}")
