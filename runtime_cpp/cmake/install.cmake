# Headers, library, command, find_package(hardtack) and pkg-config: the component "development". The bindings have their own.
include(CMakePackageConfigHelpers)

set(HARDTACK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hardtack)
install(DIRECTORY include/hardtack DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS hardtack EXPORT hardtack-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(TARGET hardtack-rt)
  install(TARGETS hardtack-rt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
endif()
install(EXPORT hardtack-targets NAMESPACE hardtack:: DESTINATION ${HARDTACK_CMAKE_DIR} FILE hardtack-targets.cmake
        COMPONENT development)
configure_package_config_file(cmake/hardtack-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config.cmake
                              INSTALL_DESTINATION ${HARDTACK_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/hardtack-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config-version.cmake
        DESTINATION ${HARDTACK_CMAKE_DIR} COMPONENT development)
configure_file(cmake/hardtack.pc.in hardtack.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hardtack.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
