// A folder for the files of a test.
#ifndef HARDTACK_SERVER_TESTS_FOLDER_H
#define HARDTACK_SERVER_TESTS_FOLDER_H

#include <unistd.h>

#include <filesystem>
#include <string>

namespace hardtack::serve::testing {

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("hardtack_serve_tests_" + std::to_string(::getpid()));
};

}  // namespace hardtack::serve::testing

#endif  // HARDTACK_SERVER_TESTS_FOLDER_H
