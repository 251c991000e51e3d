// What is counted, what is refused, and where the limit comes from.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "server/core/budget.h"

using namespace hardtack::serve;

namespace {

namespace fs = std::filesystem;

// /proc/self/cgroup and /sys/fs/cgroup of one's own.
struct Groups {
  Groups() { fs::create_directories(root); }
  ~Groups() { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  std::uint64_t limit() const { return memory_limit({(root / "groups").string(), (root / "sys").string()}); }

  const fs::path root = fs::temp_directory_path() / ("hardtack_groups_" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("a budget counts what is taken until it is given back") {
  Budget budget(1000);
  CHECK(budget.take(600));
  CHECK_FALSE(budget.take(401));
  CHECK_FALSE(budget.take(std::numeric_limits<std::uint64_t>::max()));
  CHECK(budget.take(400));
  CHECK(budget.refused() == 2);
  budget.charge(50);  // is there, whether it fits or not
  CHECK_FALSE(budget.take(1));
  budget.discharge(50);
  budget.give(1000);
  CHECK(budget.used() == 0);
  {
    const auto memory = budget.allocate(100);
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % 64 == 0);
    CHECK(budget.used() == 128);
    CHECK(budget.allocate(900) == nullptr);
    CHECK(budget.allocate(std::numeric_limits<std::size_t>::max()) == nullptr);
  }
  CHECK(budget.used() == 0);
}

TEST_CASE("what may have half of a budget has half of what is not charged, however many ask") {
  using Part = Budget::Part;
  Budget budget(1000);
  budget.charge(200);
  CHECK(budget.take(400, Part::kHalf));
  CHECK_FALSE(budget.take(1, Part::kHalf));
  CHECK(budget.refused() == 1);
  const Error now = budget.refusal("the body", 500, Part::kHalf), never = budget.refusal("the body", 501, Part::kHalf);
  CHECK(now.code == Code::kNoMemory);
  CHECK(now.sentence ==
        "no memory for the body: it takes 500 bytes, and 0 of the server's 1000 are free for it, beside the half that "
        "is left to others; try again later");
  CHECK(never.code == Code::kTooLarge);
  CHECK(never.sentence ==
        "no memory for the body: it takes 501 bytes, and it may take half of what all requests together may, 500 "
        "(--max-memory); send less");
  CHECK(budget.take(400));
  budget.discharge(200);
  budget.give(800);
  // Looking first and counting then would let several in.
  constexpr int kThreads = 8;
  std::atomic<int> ready{0}, taken{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int turn = 0; turn < 1000; ++turn) taken += budget.take(1, Part::kHalf) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == 500);
  CHECK(budget.used() == 500);
}

TEST_CASE("a share is given back with its holder, wherever that was moved") {
  Budget budget(1000);
  Share first(budget);
  CHECK(first.grow(300));
  CHECK_FALSE(first.grow(701));
  CHECK(first.grow_to(200));
  CHECK(budget.used() == 300);
  {
    Share second = std::move(first);
    CHECK(budget.used() == 300);
    Share third(budget);
    CHECK(third.grow(100));
    third = std::move(second);
    third.charge(900);  // weights
    CHECK((budget.used() == 1200 && third.nbytes() == 1200));
    third.shrink(100);
    Share fourth = std::move(third);
    CHECK((budget.used() == 1100 && third.nbytes() == 0));  // NOLINT(bugprone-use-after-move): it holds nothing now
    CHECK_FALSE(budget.take(1));
  }
  CHECK(budget.used() == 0);
  CHECK(budget.take(500, Budget::Part::kHalf));
  CHECK_FALSE(Share().grow(1));
}

TEST_CASE("a session's memory is counted, and given back as it was taken") {
  Budget budget(1 << 20);
  const ht_allocator functions = budget.allocator();
  void* memory = functions.allocate(functions.user, 4096, 64);
  REQUIRE(memory != nullptr);
  CHECK(budget.used() == 4096);
  CHECK(functions.allocate(functions.user, 1 << 20, 64) == nullptr);
  functions.release(functions.user, memory, 4096);
  CHECK(budget.used() == 0);
}

TEST_CASE("what never fits and what does not fit now are told apart") {
  Budget budget(1000);
  CHECK(budget.take(900));
  const Error now = budget.refusal("the body", 200), never = budget.refusal("the body", 2000);
  CHECK(now.code == Code::kNoMemory);
  CHECK(now.sentence ==
        "no memory for the body: it takes 200 bytes, and 100 of the server's 1000 are free; try again later");
  CHECK(never.code == Code::kTooLarge);
  CHECK(never.sentence ==
        "no memory for the body: it takes 2000 bytes, and all requests together may take 1000 (--max-memory); send "
        "less");
}

TEST_CASE("the limit is the least of all groups that the process is in") {
  const std::uint64_t none = Groups().limit();  // this machine's
  Groups two;
  two.put("groups", "0::/a/b/c");
  two.put("sys/a/b/memory.max", "123456");
  two.put("sys/a/memory.max", "max");
  two.put("sys/a/b/c/memory.max", "654321");
  CHECK(two.limit() == 123456);
  two.put("groups", "0::/elsewhere/of/the/host");
  CHECK(two.limit() == none);
  two.put("sys/memory.max", "777777");  // in a container: the root is what one sees of the own group
  CHECK(two.limit() == 777777);
  Groups one;
  one.put("groups", "5:cpu,cpuacct:/x\n4:memory:/a/b\n3:cpuset:/a/b");
  one.put("sys/memory/a/memory.limit_in_bytes", "222222");
  one.put("sys/memory/a/b/memory.limit_in_bytes", "9223372036854771712");
  one.put("sys/cpuset/a/b/memory.limit_in_bytes", "5");
  CHECK(one.limit() == 222222);
}

TEST_CASE("the rest of a limit is for the program itself") {
  constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
  CHECK(budget_within(1024 * kMib) == 768 * kMib);
  CHECK(budget_within(256 * kMib) == 192 * kMib);
  CHECK(budget_within(65536 * kMib) == 57344 * kMib);
}
