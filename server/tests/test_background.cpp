#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <thread>

#include "server/core/background.h"

using namespace hardtack::serve;

TEST_CASE("clients take turns, and all that was posted is done") {
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  std::promise<void> release;
  std::string order;
  {
    Background background(1, *log);
    background.post(9, [until = release.get_future().share()] { until.wait(); });
    for (const char* name : {"a", "b", "c"}) background.post(1, [&order, name] { order += name; });
    for (const char* name : {"x", "y"}) background.post(2, [&order, name] { order += name; });
    background.post(3, [&order] { order += "1"; });
    release.set_value();
  }
  CHECK(order == "ax1byc");
  std::string here;
  Background(0, *log).post(1, [&here] { here = "done"; });
  CHECK(here == "done");
}

TEST_CASE("tasks whose clients have left are done while no other is posted, and dropped else") {
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  std::promise<void> release;
  std::string order;
  {
    Background background(1, *log);
    background.post(9, [until = release.get_future().share()] { until.wait(); });
    for (const char* name : {"a", "b", "c"}) {
      const bool left = *name != 'b';
      const Background::Waiter waiter{[left] { return left; }, [&order] { order += "-"; }};
      background.post(
          1, [&order, name] { order += name; }, waiter);
    }
    for (const char* name : {"x", "y"}) background.post(2, [&order, name] { order += name; });
    release.set_value();
  }
  CHECK(order == "-xbyc");
}

TEST_CASE("a task that throws is given up, and the next is done") {
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  bool next = false;
  {
    Background background(1, *log);
    background.post(1, [] { throw std::bad_alloc(); });
    background.post(1, [&next] { next = true; });
  }
  CHECK(next);
  CHECK(log->exceptions() == 1);
}

TEST_CASE("one client never has all threads") {
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  std::promise<void> release;
  const auto until = release.get_future().share();
  std::atomic<int> begun = 0;
  std::promise<void> other, third;
  const auto hold = [&, until] {
    ++begun;
    until.wait();
  };
  {
    Background background(3, *log);
    for (int i = 0; i < 5; ++i) background.post(1, hold);
    background.post(2, [&] { other.set_value(); });
    other.get_future().wait();  // while the tasks of the first do not end
    while (begun < 2) std::this_thread::yield();
    background.post(3, [&] { third.set_value(); });
    third.get_future().wait();
    CHECK(begun == 2);
    release.set_value();
  }
  CHECK(begun == 5);
}

TEST_CASE("tasks of clients that have left do not have all threads, either") {
  const auto log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  std::promise<void> release;
  const auto until = release.get_future().share();
  std::atomic<int> begun = 0, dropped = 0;
  std::promise<void> other;
  {
    Background background(3, *log);
    const Background::Waiter waiter{[] { return true; }, [&] { ++dropped; }};
    const auto hold = [&, until] {
      ++begun;
      until.wait();
    };
    for (std::uint64_t client = 1; client < 6; ++client) background.post(client, hold, waiter);
    while (begun < 2) std::this_thread::yield();
    background.post(9, [&] { other.set_value(); });
    other.get_future().wait();
    CHECK(begun == 2);
    release.set_value();
  }
  CHECK(begun + dropped == 5);
}
