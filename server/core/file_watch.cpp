#include "server/core/file_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "server/core/bundles.h"
#include "server/core/contain.h"

namespace hardtack::serve {

namespace {

constexpr auto kLook = std::chrono::milliseconds(500);

}  // namespace

std::string stamp_of_files(const std::vector<std::string>& paths) {
  std::string stamp;
  for (const std::string& path : paths) {
    if (!path.empty()) stamp += stamp_of_file(path) + " ";
  }
  return stamp;
}

bool is_unreadable(const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    const int file = path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return !path.empty() && errno != ENOENT;
    ::close(file);
    return false;
  });
}

FileWatch::FileWatch(std::vector<Watched> all, Log& log) : log_(log), all_(std::move(all)) {
  thread_ = std::thread([this] { work(); });
}

FileWatch::~FileWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// A look for which there is no memory is made up for by the next.
void FileWatch::work() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kLook, [this] { return ending_; })) {
    for (Watched& one : all_) {
      contain(log_, "a look at files", [&] {
        std::string now = stamp_of_files(one.paths);
        if (now != one.stamp && one.changed()) one.stamp = std::move(now);
      });
    }
  }
}

}  // namespace hardtack::serve
