# The program hardtack-server.
find_package(CLI11 2.1 REQUIRED)

add_executable(hardtack-server command_line.cpp main.cpp)
target_link_libraries(hardtack-server PRIVATE hardtack_serve_http hardtack_warnings CLI11::CLI11)
if(HARDTACK_SERVER_GRPC)
  target_link_libraries(hardtack-server PRIVATE hardtack_serve_grpc)
  target_compile_definitions(hardtack-server PRIVATE HARDTACK_SERVER_GRPC)
endif()
if(SKBUILD OR NOT HARDTACK_SHARED)
  # Among the wheel's scripts no fixed path leads to the library: the program carries the runtime in itself.
  target_link_libraries(hardtack-server PRIVATE hardtack_objects ${CMAKE_DL_LIBS})
else()
  target_link_libraries(hardtack-server PRIVATE hardtack::hardtack)
endif()
if(SKBUILD)
  add_dependencies(hardtack_native hardtack-server)
  install(TARGETS hardtack-server RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
else()
  set_target_properties(hardtack-server PROPERTIES
      BUILD_RPATH_USE_ORIGIN ON
      INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS hardtack-server RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT server)
endif()
