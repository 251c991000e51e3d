// Tells when files change: tokens and certificates are replaced while the server runs.
#ifndef HARDTACK_SERVER_CORE_FILE_WATCH_H
#define HARDTACK_SERVER_CORE_FILE_WATCH_H

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hardtack::serve {

class FileWatch {
 public:
  struct Watched {
    std::vector<std::string> paths;  // "" is no file
    std::function<void()> changed;   // on the watch's thread; must not throw
    std::string stamp;               // of all
  };
  /// Looks at the files twice a second.
  explicit FileWatch(std::vector<Watched> all);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  void work() noexcept;
  std::vector<Watched> all_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_FILE_WATCH_H
