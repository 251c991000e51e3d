// Tells when files change: tokens and certificates are replaced while the server runs.
#ifndef HARDTACK_SERVER_CORE_FILE_WATCH_H
#define HARDTACK_SERVER_CORE_FILE_WATCH_H

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/core/log.h"

namespace hardtack::serve {

/// Changes when one of these files is replaced or written; "" is no file. What stands for what was read is taken before
/// the files are read.
std::string stamp_of_files(const std::vector<std::string>& paths);

/// Whether one of these files is there and cannot be opened, so that it may be read at another time.
bool is_unreadable(const std::vector<std::string>& paths);

class FileWatch {
 public:
  struct Watched {
    std::vector<std::string> paths;  // "" is no file
    std::string stamp;               // stamp_of_files before they were read
    std::function<bool()> changed;   // on the watch's thread. False: they could not be read, and are to be tried again
  };
  /// Looks at the files twice a second. `log` must outlive this.
  FileWatch(std::vector<Watched> all, Log& log);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  void work() noexcept;
  Log& log_;
  std::vector<Watched> all_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_FILE_WATCH_H
