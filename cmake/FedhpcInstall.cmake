# Install and export: `find_package(fedhpc)` gives fedhpc::fedhpc. LibTorch is not installed with it;
# the package configuration makes the same imported targets from FEDHPC_TORCH again.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS fedhpc fedhpc_options EXPORT fedhpcTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS fedhpc_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(FEDHPC_CUDA_ENABLED)
  install(TARGETS fedhpc_gpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fedhpc)
endif()
if(FEDHPC_KERNELS_ENABLED)
  install(TARGETS fedhpc_kernels LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fedhpc)
endif()
install(DIRECTORY include/fedhpc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT fedhpcTargets NAMESPACE fedhpc:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc)
configure_package_config_file(cmake/fedhpcConfig.cmake.in "${PROJECT_BINARY_DIR}/fedhpcConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fedhpcConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/fedhpcConfig.cmake" "${PROJECT_BINARY_DIR}/fedhpcConfigVersion.cmake"
              cmake/FedhpcTorch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fedhpc)
