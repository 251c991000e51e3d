# Parts whose files are compiled several at a time: what each would instantiate of the C++ library is instantiated once, and
# that is most of what compiling them takes. For builds from scratch that run the tests: a change compiles more than its file
# again. clang-tidy sees each file by itself, with the includes that it names: ./dev check builds without.
option(HARDTACK_UNITY "Compile several files of the library and the servers at a time" OFF)

# hardtack_unity(TARGET FILE...): all but the FILEs, whose own names are those of others.
function(hardtack_unity target)
  if(HARDTACK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
