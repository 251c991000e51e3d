#include "server/core/file_watch.h"

#include <chrono>

#include "server/core/bundles.h"

namespace hardtack::serve {

namespace {

constexpr auto kLook = std::chrono::milliseconds(500);

std::string stamp_of(const std::vector<std::string>& paths) {
  std::string stamp;
  for (const std::string& path : paths) {
    if (!path.empty()) stamp += stamp_of_file(path) + " ";
  }
  return stamp;
}

}  // namespace

FileWatch::FileWatch(std::vector<Watched> all) : all_(std::move(all)) {
  for (Watched& one : all_) one.stamp = stamp_of(one.paths);
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
      try {
        std::string now = stamp_of(one.paths);
        if (now == one.stamp) continue;
        one.stamp = std::move(now);
        one.changed();
      } catch (...) {
      }
    }
  }
}

}  // namespace hardtack::serve
