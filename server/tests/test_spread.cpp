#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "server/core/spread.h"

using namespace hardtack::serve;

namespace {

constexpr int kKind = 0, kOther = 0;
constexpr std::size_t kMuch = std::size_t{1} << 40;

// Tasks of one region: each notes its thread, and waits for a task on another thread where that is expected.
struct Region {
  std::mutex mutex;
  std::condition_variable met;
  std::set<std::thread::id> threads;
  std::size_t expected = 1;

  static void task(void* closure, std::int64_t, std::int32_t) {
    Region& self = *static_cast<Region*>(closure);
    std::unique_lock<std::mutex> lock(self.mutex);
    self.threads.insert(std::this_thread::get_id());
    self.met.notify_all();
    self.met.wait_for(lock, std::chrono::seconds(20), [&] { return self.threads.size() >= self.expected; });
  }
};

std::size_t num_threads(const Spread& spread, std::size_t expected) {
  Region region;
  region.expected = expected;
  const HtParallel& parallel = spread.parallel();
  parallel.run(parallel.pool, 2, &Region::task, &region);
  return region.threads.size();
}

void succeed(Spread& spread, std::size_t nbytes) {
  Spread::Run run(spread, &kKind, nbytes, 1);
  run.succeeded(std::chrono::microseconds(1));
}

struct TwoThreads {
  TwoThreads() {
    auto created = hardtack::Pool::create(2);
    REQUIRE(created.ok());
    workers.pool = std::move(*created);
  }
  Workers workers;
};

}  // namespace

TEST_CASE("a run whose kind is not known is spread over the pool") {
  TwoThreads two;
  Spread spread(two.workers);
  CHECK(spread.parallel().nworkers == 2);
  const Spread::Run run(spread, &kKind, 1, 1);
  CHECK(num_threads(spread, 2) == 2);
}

TEST_CASE("runs that are short stay on their thread, by the bytes they take in") {
  TwoThreads two;
  Spread spread(two.workers);
  succeed(spread, kMuch);
  {
    const Spread::Run run(spread, &kKind, 1, 1);
    CHECK(num_threads(spread, 1) == 1);
  }
  {
    const Spread::Run run(spread, &kOther, 1, 1);
    CHECK(num_threads(spread, 2) == 2);
  }
  const Spread::Run run(spread, &kOther, kMuch, 1);
  CHECK(num_threads(spread, 2) == 2);
}

TEST_CASE("while another session runs, a run stays on its thread") {
  TwoThreads two;
  Spread spread(two.workers), other(two.workers);
  const Spread::Run run(spread, &kKind, 1, 1);
  {
    const Spread::Run meanwhile(other, &kKind, 1, 1);
    CHECK(num_threads(spread, 1) == 1);
  }
  CHECK(num_threads(spread, 2) == 2);
}

void take_a_nanosecond_a_byte(Spread& spread) {
  Spread::Run run(spread, &kKind, 10'000'000, 1);
  run.succeeded(std::chrono::milliseconds(10));
}

TEST_CASE("a run that others make wait for no thread of its own counts as long as it took") {
  TwoThreads two;
  Spread spread(two.workers), other(two.workers);
  {
    const Spread::Run meanwhile(other, &kKind, 1, 1);
    take_a_nanosecond_a_byte(spread);
  }
  CHECK(spread.is_short(&kKind, 60'000));
  CHECK_FALSE(spread.is_short(&kKind, 110'000));
}

TEST_CASE("a run of some tens of microseconds is spread where one client asks, and not where several do") {
  TwoThreads two;
  Spread spread(two.workers), other(two.workers);
  const auto begin = [&](std::uint64_t client) { const Spread::Run run(spread, &kKind, 60'000, client); };
  const auto check = [&](std::size_t threads, std::uint64_t client, std::size_t nbytes = 60'000) {
    const Spread::Run run(spread, &kKind, nbytes, client);
    CHECK(num_threads(spread, threads) == threads);
  };
  for (int i = 0; i < 100; ++i) begin(1);
  take_a_nanosecond_a_byte(spread);
  for (int i = 0; i < 8; ++i) begin(1);  // are done the other way
  CHECK(spread.is_short(&kKind, 60'000));
  check(2, 1);
  check(1, 1, 20'000);
  for (std::uint64_t i = 0; i < 20; ++i) begin(i);
  check(1, 1);
  check(1, 2);
  for (int i = 0; i < 100; ++i) begin(1);
  check(2, 1);
  for (int i = 0; i < 20; ++i) {
    const Spread::Run meanwhile(other, &kKind, 1, 1);
    begin(1);
  }
  check(1, 1);
}

TEST_CASE("runs without bytes are not all short") {
  TwoThreads two;
  Spread spread(two.workers);
  {
    Spread::Run run(spread, &kKind, 0, 1);
    run.succeeded(std::chrono::milliseconds(1));
  }
  CHECK_FALSE(spread.is_short(&kKind, 0));
}

// Whether each of some runs was spread, of which one takes so long on one thread or spread.
std::vector<bool> spread_of(Spread& spread, int count, std::chrono::microseconds alone,
                            std::chrono::microseconds shared) {
  std::vector<bool> found;
  for (int i = 0; i < count; ++i) {
    Spread::Run run(spread, &kKind, 1000, 1);
    found.push_back(run.may_spread());
    CHECK(num_threads(spread, run.may_spread() ? 2 : 1) == (run.may_spread() ? 2 : 1));
    run.succeeded(found.back() ? shared : alone);
  }
  return found;
}

TEST_CASE("of one client's runs those are spread that have been seen to gain by it") {
  using us = std::chrono::microseconds;
  const auto share = [](us alone, us shared) {
    TwoThreads two;
    Spread spread(two.workers);
    const auto found = spread_of(spread, 3000, alone, shared);
    return std::count(found.begin() + 100, found.end(), true);
  };
  CHECK(share(us(60), us(30)) >= 2800);
  CHECK(share(us(600), us(320)) >= 2800);
  CHECK(share(us(5000), us(2600)) == 2900);  // for sure, without trials
  CHECK(share(us(60), us(50)) <= 100);
  CHECK(share(us(400), us(400)) <= 100);
  CHECK(share(us(40), us(20)) <= 100);
  CHECK(share(us(20), us(5)) == 0);
}

TEST_CASE("what runs gain is found again when it changes") {
  using us = std::chrono::microseconds;
  TwoThreads two;
  Spread spread(two.workers);
  const auto share = [&](us alone, us shared) {
    (void)spread_of(spread, 20'000, alone, shared);
    const auto found = spread_of(spread, 1000, alone, shared);
    return std::count(found.begin(), found.end(), true);
  };
  CHECK(share(us(80), us(40)) >= 900);
  CHECK(share(us(80), us(90)) <= 100);
  CHECK(share(us(80), us(40)) >= 900);
}

TEST_CASE("the longer the same way is the better one, the fewer runs are done the other way") {
  using us = std::chrono::microseconds;
  const auto others = [](us alone, us shared, bool spread_is_better) {
    TwoThreads two;
    Spread spread(two.workers);
    (void)spread_of(spread, 100, alone, shared);
    const auto early = spread_of(spread, 4000, alone, shared);
    (void)spread_of(spread, 20'000, alone, shared);
    const auto late = spread_of(spread, 20'000, alone, shared);
    CHECK(std::count(early.begin(), early.end(), !spread_is_better) == 16);
    CHECK(std::count(late.begin(), late.end(), !spread_is_better) == 8);
  };
  others(us(60), us(30), true);
  others(us(60), us(50), false);
}

TEST_CASE("what is known of one kind of run stays while another kind runs") {
  TwoThreads two;
  Spread spread(two.workers);
  succeed(spread, kMuch);
  {
    Spread::Run run(spread, &kOther, 1, 1);
    run.succeeded(std::chrono::milliseconds(5));
  }
  CHECK(spread.is_short(&kKind, 1));
  CHECK_FALSE(spread.is_short(&kOther, 1));
}

TEST_CASE("a run that failed tells nothing about the next") {
  TwoThreads two;
  Spread spread(two.workers);
  { const Spread::Run run(spread, &kKind, kMuch, 1); }
  CHECK_FALSE(spread.is_short(&kKind, 1));
  succeed(spread, kMuch);
  CHECK(spread.is_short(&kKind, 1));
}

TEST_CASE("where the data decides how long a run takes, few long ones are taken for short") {
  TwoThreads two;
  Spread spread(two.workers);
  const auto run = [&](bool takes_long) {
    const bool taken_for_short = spread.is_short(&kKind, 1);
    Spread::Run one(spread, &kKind, 1, 1);
    one.succeeded(takes_long ? std::chrono::nanoseconds(std::chrono::milliseconds(1)) : std::chrono::nanoseconds(50));
    return taken_for_short;
  };
  // So short that one long run at most doubles what is expected: it does not reach the limit for long.
  for (int i = 0; i < 200 && !spread.is_short(&kKind, 1000); ++i) run(false);
  int wrong = 0;
  for (int i = 0; i < 40; ++i) wrong += run(true) ? 1 : 0;
  CHECK(wrong <= 2);
  for (int i = 0; i < 40; ++i) run(false);
  wrong = 0;
  for (int i = 0; i < 40; ++i) {
    wrong += run(true) ? 1 : 0;
    run(false);
  }
  CHECK(wrong <= 2);
}
