# Install, export and archive. `find_package(fedhpc)` gives fedhpc::fedhpc, `pkg-config fedhpc` the flags. LibTorch is
# not installed with it: the program looks for it in lib/fedhpc/torch beside itself, then where it was built with.
#
#   PREFIX/bin, include, lib        program, headers, library, modules for GPUs
#   PREFIX/share/fedhpc             as the project's folder: tools, their package, configurations, job scripts, pages
#
# The component `torch`, which only who asks for it gets, is LibTorch's libraries in lib/fedhpc/torch: what is packed
# with it runs on CPUs of machines without. The modules for GPUs want a whole LibTorch in that place.
# The component `python` is the Python package (below).
include(CMakePackageConfigHelpers)
set(_share "${CMAKE_INSTALL_DATADIR}/fedhpc")

install(TARGETS fedhpc fedhpc_options fedhpc_plugin EXPORT fedhpcTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS fedhpc_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
foreach(_module fedhpc_gpu fedhpc_kernels)
  if(TARGET ${_module})
    install(TARGETS ${_module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fedhpc COMPONENT program)
  endif()
endforeach()
install(DIRECTORY include/fedhpc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES "${FEDHPC_VERSION_HEADER}" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fedhpc COMPONENT library)
install(EXPORT fedhpcTargets NAMESPACE fedhpc:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc COMPONENT library)
configure_package_config_file(cmake/fedhpcConfig.cmake.in "${PROJECT_BINARY_DIR}/fedhpcConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fedhpcConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/fedhpcConfig.cmake" "${PROJECT_BINARY_DIR}/fedhpcConfigVersion.cmake"
              cmake/FedhpcTorch.cmake cmake/FedhpcPlugin.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc COMPONENT library)

# For programs that are not built by CMake: what the library itself links, by file where CMake knows it so.
set(_links "")
foreach(_library IN LISTS HDF5_C_LIBRARIES MPI_C_LIBRARIES)
  string(APPEND _links " ${_library}")
endforeach()
get_target_property(_boost Boost::program_options LOCATION)
set(FEDHPC_PC_LIBS "${_boost}${_links} -lz -llzma -ljpeg -lpthread -ldl")
set(FEDHPC_PC_CFLAGS "")
foreach(_folder IN LISTS HDF5_C_INCLUDE_DIRS)
  string(APPEND FEDHPC_PC_CFLAGS " -isystem ${_folder}")
endforeach()
set(FEDHPC_PC_BLAS "")
if(NOT FEDHPC_TORCH_HAS_BLAS)
  string(REPLACE ";" " " _blas "${BLAS_LIBRARIES}")
  string(APPEND FEDHPC_PC_BLAS " ${_blas}")
endif()
file(RELATIVE_PATH FEDHPC_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" FEDHPC_PC_PREFIX "${FEDHPC_PC_PREFIX}")
configure_file(cmake/fedhpc.pc.in "${PROJECT_BINARY_DIR}/fedhpc.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/fedhpc.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)

# What lies below share/fedhpc finds its own by the same paths as in the project's folder.
install(DIRECTORY tools/ DESTINATION ${_share}/tools COMPONENT program USE_SOURCE_PERMISSIONS
        REGEX "/(__pycache__|apptainer|site)$|/(setup|build|test|quickstart|docs|fuzz|try_on|wheel)\\.sh$" EXCLUDE
        REGEX "/(bundle|draw_rooms|campaign)\\.py$|/completion\\.bash$" EXCLUDE)
install(DIRECTORY python/fedhpc DESTINATION ${_share}/python COMPONENT program
        REGEX "/__pycache__$|/_core[^/]*\\.so$" EXCLUDE)
install(DIRECTORY configs jobs docs examples DESTINATION ${_share} COMPONENT program USE_SOURCE_PERMISSIONS)
install(DIRECTORY results/papers DESTINATION ${_share}/results COMPONENT program FILES_MATCHING PATTERN "*.csv")
install(FILES README.md CHANGELOG.md CITATION.cff LICENSE VERSION DESTINATION ${_share} COMPONENT program)
install(FILES tools/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME fedhpc
        COMPONENT program)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DPROGRAM=$<TARGET_FILE:fedhpc_app>\"
                              \"-DOUTPUT=${PROJECT_BINARY_DIR}/fedhpc.1\" -DVERSION=${FEDHPC_VERSION}
                              -P \"${PROJECT_SOURCE_DIR}/cmake/man_page.cmake\" RESULT_VARIABLE _failed)
              if(_failed)  # built for other processors, perhaps
                message(WARNING \"No manual page: the program does not run here.\")
              endif()"
        COMPONENT program)
install(FILES "${PROJECT_BINARY_DIR}/fedhpc.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program OPTIONAL)

# Of LibTorch what the library loads, found as the loader finds it; the machine's own libraries stay out. Stripped it
# is a fifth smaller.
function(fedhpc_install_torch component folder)
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES LIBRARIES \"$<TARGET_FILE:fedhpc>\" RESOLVED_DEPENDENCIES_VAR _found
         UNRESOLVED_DEPENDENCIES_VAR _missing POST_EXCLUDE_REGEXES \"^/(usr/)?lib(64)?/\")
    list(FILTER _found INCLUDE REGEX \"/lib(torch|c10|gomp|cudart|cupti|shm|mkl)[^/]*$\")
    file(INSTALL \${_found} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\" FOLLOW_SYMLINK_CHAIN)
    foreach(_library IN LISTS _found)
      get_filename_component(_name \"\${_library}\" NAME)
      execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
                      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/\${_name}\")
    endforeach()" COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
fedhpc_install_torch(torch ${CMAKE_INSTALL_LIBDIR}/fedhpc/torch)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${FEDHPC_TORCH_LIBRARY_DIR}" NORMALIZE _torch_goes_with_the_sources)
if(_torch_goes_with_the_sources)
  set(_torch_stays "cmake --install ${PROJECT_BINARY_DIR} --prefix \${CMAKE_INSTALL_PREFIX} --component torch")
  if(TARGET fedhpc_gpu)  # its modules load more of LibTorch than the component has
    set(_torch_stays "make \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/fedhpc/torch a link to a whole LibTorch elsewhere")
  endif()
  install(CODE "
    if(NOT EXISTS \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/fedhpc/torch\")
      message(STATUS \"The program takes LibTorch from ${FEDHPC_TORCH_LIBRARY_DIR}. Before this folder goes or moves: \"
                     \"${_torch_stays}\")
    endif()" COMPONENT program)
endif()

# The component `python`, for a wheel, or for a folder on PYTHONPATH: the package with an installation of its own inside.
# A wheel brings LibTorch along, and scikit-build-core puts the Python sources into it.
if(FEDHPC_PYTHON_MODULE_ENABLED)
  install(TARGETS fedhpc_python LIBRARY DESTINATION fedhpc COMPONENT python EXCLUDE_FROM_ALL)
  install(TARGETS fedhpc LIBRARY DESTINATION fedhpc/lib COMPONENT python EXCLUDE_FROM_ALL)
  foreach(_module fedhpc_gpu fedhpc_kernels)
    if(TARGET ${_module})
      install(TARGETS ${_module} LIBRARY DESTINATION fedhpc/lib/fedhpc COMPONENT python EXCLUDE_FROM_ALL)
    endif()
  endforeach()
  install(FILES "${PROJECT_BINARY_DIR}/python/fedhpc/_built_with.py" "${PROJECT_BINARY_DIR}/python/fedhpc/_core.pyi"
          DESTINATION fedhpc COMPONENT python EXCLUDE_FROM_ALL)
  install(DIRECTORY configs jobs DESTINATION fedhpc/share/fedhpc COMPONENT python EXCLUDE_FROM_ALL USE_SOURCE_PERMISSIONS)
  if(SKBUILD)
    fedhpc_install_torch(python fedhpc/lib/fedhpc/torch)
  else()
    install(DIRECTORY python/fedhpc DESTINATION . COMPONENT python EXCLUDE_FROM_ALL
            FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")
  endif()
endif()

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME fedhpc)
set(CPACK_PACKAGE_VERSION ${FEDHPC_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_COMPONENTS_ALL program library)
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
