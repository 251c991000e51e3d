// Threads for what takes long: loading and unloading models by request.
#ifndef HARDTACK_SERVER_GRPC_BACKGROUND_H
#define HARDTACK_SERVER_GRPC_BACKGROUND_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hardtack::serve::rpc {

class Background {
 public:
  explicit Background(int threads);
  /// Does what was posted, then ends.
  ~Background();
  void post(std::function<void()> task);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_BACKGROUND_H
