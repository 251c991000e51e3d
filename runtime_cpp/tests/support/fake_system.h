// A tree of files that stand for /proc and /sys, in a folder of their own that goes away with it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

namespace hardtack::testing {

class FakeSystem {
 public:
  FakeSystem() { std::filesystem::create_directories(root_); }
  ~FakeSystem() { std::filesystem::remove_all(root_); }
  FakeSystem(const FakeSystem&) = delete;
  FakeSystem& operator=(const FakeSystem&) = delete;

  /// Writes a file and makes the folders that it lies in; a newline is added.
  FakeSystem& put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
    return *this;
  }

  std::string root() const { return root_.string(); }

 private:
  static std::string name() {
    static std::atomic<int> count{0};
    return "hardtack_system_" + std::to_string(::getpid()) + "_" + std::to_string(count++);
  }

  const std::filesystem::path root_ = std::filesystem::temp_directory_path() / name();
};

}  // namespace hardtack::testing
