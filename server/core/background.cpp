#include "server/core/background.h"

#include <algorithm>

#include "server/core/contain.h"

namespace hardtack::serve {

Background::Background(int threads, Log& log) : log_(log) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    join();
    throw;
  }
}

Background::~Background() { join(); }

void Background::join() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Background::post(std::uint64_t client, std::function<void()> task) {
  if (threads_.empty()) return task();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& one) { return one.client == client; });
    if (line == lines_.end()) line = lines_.insert(lines_.end(), Line{client, {}});
    try {
      line->tasks.push_back(std::move(task));
    } catch (...) {
      if (line->tasks.empty()) lines_.erase(line);
      throw;
    }
  }
  wake_.notify_one();
}

void Background::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || !lines_.empty(); });
    if (lines_.empty()) return;
    Line& line = lines_.front();
    std::function<void()> task = std::move(line.tasks.front());
    line.tasks.pop_front();
    if (line.tasks.empty()) {
      lines_.pop_front();
    } else {
      lines_.splice(lines_.end(), lines_, lines_.begin());
    }
    lock.unlock();
    contain(log_, "a task", task);
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace hardtack::serve
