#include "server/core/background.h"

#include <algorithm>

#include "server/core/contain.h"

namespace hardtack::serve {

Background::Background(int threads, Log& log) : log_(log), running_(static_cast<std::size_t>(threads)) {
  try {
    for (std::size_t i = 0; i < running_.size(); ++i) threads_.emplace_back([this, i] { work(i); });
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

// At the end nobody comes any more.
bool Background::may_run(std::uint64_t client) const {
  const auto running = std::count(running_.begin(), running_.end(), std::optional(client));
  return ending_ || running_.size() < 2 || static_cast<std::size_t>(running) + 1 < running_.size();
}

Background::Lines::iterator Background::first_to_run() {
  return std::find_if(lines_.begin(), lines_.end(), [this](const Line& one) { return may_run(one.client); });
}

bool Background::may_run_any() const {
  return std::any_of(lines_.begin(), lines_.end(), [this](const Line& one) { return may_run(one.client); }) ||
         (!behind_.empty() && may_run(kGone));
}

// The next task, of a client that is still there if one is; none if all may not run yet. Nothing here takes memory.
std::list<Background::Task> Background::next(std::size_t thread, std::list<Task>* dropped) {
  std::list<Task> found;
  for (auto line = first_to_run(); found.empty() && line != lines_.end(); line = first_to_run()) {
    const auto first = line->tasks.begin();
    std::list<Task>& to = first->waiter.has_left && first->waiter.has_left() ? behind_ : found;
    to.splice(to.end(), line->tasks, first);
    if (!found.empty()) running_[thread] = line->client;
    if (line->tasks.empty()) {
      lines_.erase(line);
    } else {
      lines_.splice(lines_.end(), lines_, line);
    }
  }
  if (!found.empty()) {
    dropped->swap(behind_);
  } else if (!behind_.empty() && may_run(kGone)) {
    running_[thread] = kGone;
    found.splice(found.end(), behind_, behind_.begin());
  }
  return found;
}

void Background::work(std::size_t thread) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return may_run_any() || (ending_ && lines_.empty() && behind_.empty()); });
    if (lines_.empty() && behind_.empty()) return;
    std::list<Task> dropped, task = next(thread, &dropped);
    lock.unlock();
    for (const Task& each : dropped) contain(log_, "a task", each.waiter.drop);
    dropped.clear();
    for (const Task& each : task) contain(log_, "a task", each.run);
    task.clear();  // what it holds goes without the lock
    lock.lock();
    running_[thread].reset();
  }
}

}  // namespace hardtack::serve
