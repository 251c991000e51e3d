# Headers, library, command, find_package(hardtack) and pkg-config: the component "development". The bindings have their own.
include(CMakePackageConfigHelpers)

set(HARDTACK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hardtack)
install(DIRECTORY include/hardtack DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS hardtack EXPORT hardtack-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(TARGET hardtack-rt)
  install(TARGETS hardtack-rt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
endif()
install(EXPORT hardtack-targets NAMESPACE hardtack:: DESTINATION ${HARDTACK_CMAKE_DIR} FILE hardtack-targets.cmake
        COMPONENT development)
# What a static library leaves to whoever links it; a shared one has it linked already.
set(HARDTACK_CXX_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM HARDTACK_CXX_LIBRARIES "" ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_DUPLICATES HARDTACK_CXX_LIBRARIES)
configure_package_config_file(cmake/hardtack-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config.cmake
                              INSTALL_DESTINATION ${HARDTACK_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/hardtack-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/hardtack-config-version.cmake
        DESTINATION ${HARDTACK_CMAKE_DIR} COMPONENT development)
# The tree may be moved: hardtack.pc finds its prefix from where it lies, which is one folder deeper on Debian.
file(RELATIVE_PATH HARDTACK_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" HARDTACK_PC_TO_PREFIX ${HARDTACK_PC_TO_PREFIX})
set(HARDTACK_PC_LIBS -lhardtack)
if(NOT HARDTACK_SHARED)
  foreach(library IN LISTS HARDTACK_CXX_LIBRARIES CMAKE_DL_LIBS)
    string(APPEND HARDTACK_PC_LIBS " -l${library}")
  endforeach()
  string(APPEND HARDTACK_PC_LIBS " ${CMAKE_THREAD_LIBS_INIT}")
endif()
configure_file(cmake/hardtack.pc.in hardtack.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hardtack.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
