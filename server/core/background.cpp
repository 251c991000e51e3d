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

void Background::post(std::uint64_t client, std::function<void()> task, Waiter waiter) {
  if (threads_.empty()) return task();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& one) { return one.client == client; });
    if (line == lines_.end()) line = lines_.insert(lines_.end(), Line{client, {}});
    try {
      line->tasks.push_back({std::move(task), std::move(waiter)});
    } catch (...) {
      if (line->tasks.empty()) lines_.erase(line);
      throw;
    }
  }
  wake_.notify_one();
}

// The next task, of a client that is still there if one is. Nothing here takes memory.
std::list<Background::Task> Background::next(std::list<Task>* dropped) {
  std::list<Task> found;
  while (found.empty() && !lines_.empty()) {
    Line& line = lines_.front();
    const auto first = line.tasks.begin();
    std::list<Task>& to = first->waiter.has_left && first->waiter.has_left() ? behind_ : found;
    to.splice(to.end(), line.tasks, first);
    if (line.tasks.empty()) {
      lines_.pop_front();
    } else {
      lines_.splice(lines_.end(), lines_, lines_.begin());
    }
  }
  if (found.empty()) {
    found.splice(found.end(), behind_, behind_.begin());
  } else {
    dropped->swap(behind_);
  }
  return found;
}

void Background::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || !lines_.empty() || !behind_.empty(); });
    if (lines_.empty() && behind_.empty()) return;
    std::list<Task> dropped, task = next(&dropped);
    lock.unlock();
    for (const Task& each : dropped) contain(log_, "a task", each.waiter.drop);
    dropped.clear();
    contain(log_, "a task", task.front().run);
    task.clear();  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace hardtack::serve
