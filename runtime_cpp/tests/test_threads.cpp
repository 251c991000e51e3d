// The pool, and many sessions over one model.
#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "support/samples.h"
#include "thread_pool.h"

using namespace hardtack;
using namespace hardtack::testing;
using hardtack::rt::ThreadPool;

namespace {

struct Marks {
  std::vector<std::atomic<int>> tasks;
  std::vector<std::atomic<int>> workers;
  explicit Marks(size_t num_tasks, size_t num_workers) : tasks(num_tasks), workers(num_workers) {}
  static void mark(void* closure, int64_t index, int32_t worker) {
    Marks* self = static_cast<Marks*>(closure);
    // No two tasks at once on one worker.
    CHECK(self->workers[static_cast<size_t>(worker)].exchange(1) == 0);
    self->tasks[static_cast<size_t>(index)].fetch_add(1);
    self->workers[static_cast<size_t>(worker)].store(0);
  }
};

void check_rows(Session* session, int64_t rows, int64_t width) {
  std::vector<float> x(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  auto out = session->run({Tensor::of(x.data(), {rows, width})}, "rows");
  REQUIRE_MESSAGE(out.ok(), std::string(out.status().message()));
  for (int64_t r = 0; r < rows; ++r) {
    const float expected = std::accumulate(x.begin() + r * width, x.begin() + (r + 1) * width, 0.0f);
    if (out->at(0).data<float>()[r] != expected) FAIL("row " << r);
  }
}

}  // namespace

TEST_CASE("each task runs exactly once, each worker does one at a time") {
  for (const int32_t threads : {1, 2, 5}) {
    std::shared_ptr<ThreadPool> pool;
    REQUIRE(ThreadPool::create(threads, &pool).ok());
    CHECK(pool->num_threads() == threads);
    for (const size_t num_tasks : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{100}}) {
      for (int round = 0; round < 50; ++round) {
        Marks marks(num_tasks, static_cast<size_t>(threads));
        pool->parallel()->run(pool->parallel()->pool, static_cast<int64_t>(num_tasks), &Marks::mark, &marks);
        for (auto& task : marks.tasks) CHECK(task.load() == 1);
      }
    }
  }
}

TEST_CASE("each worker begins with its own share, and takes what is left of another's") {
  constexpr int64_t kTasks = 10;
  struct Shares {
    std::atomic<int> begun{0}, ended{0};
    std::atomic<int64_t> first[2] = {-1, -1};
    static void run(void* closure, int64_t index, int32_t worker) {
      Shares* self = static_cast<Shares*>(closure);
      int64_t none = -1;
      if (self->first[worker].compare_exchange_strong(none, index)) {
        self->begun.fetch_add(1);
        while (self->begun.load() < 2) std::this_thread::yield();
        // Worker 1 is held up in its first task until worker 0 has done all others.
        while (worker == 1 && self->ended.load() < kTasks - 1) std::this_thread::yield();
      }
      self->ended.fetch_add(1);
    }
  };
  std::shared_ptr<ThreadPool> pool;
  REQUIRE(ThreadPool::create(2, &pool).ok());
  for (int round = 0; round < 20; ++round) {
    Shares shares;
    pool->parallel()->run(pool->parallel()->pool, kTasks, &Shares::run, &shares);
    CHECK(shares.ended.load() == kTasks);
    CHECK(shares.first[0].load() == 0);
    CHECK(shares.first[1].load() == kTasks / 2);
  }
}

TEST_CASE("a pool wakes after sleeping") {
  std::shared_ptr<ThreadPool> pool;
  REQUIRE(ThreadPool::create(3, &pool).ok());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Marks marks(64, 3);
    pool->parallel()->run(pool->parallel()->pool, 64, &Marks::mark, &marks);
    for (auto& task : marks.tasks) CHECK(task.load() == 1);
  }
}

TEST_CASE("a caller waits, asleep if it takes long, for the tasks of its workers") {
  struct Slow {
    std::atomic<int> begun{0}, ended{0};
    static void run(void* closure, int64_t, int32_t worker) {
      Slow* self = static_cast<Slow*>(closure);
      self->begun.fetch_add(1);
      // The caller has its task done when a worker has just begun.
      if (worker == 0) {
        for (int i = 0; i < 1000 && self->begun.load() == 1; ++i) std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      self->ended.fetch_add(1);
    }
  };
  for (const int32_t threads : {2, 4, 16}) {
    std::shared_ptr<ThreadPool> pool;
    REQUIRE(ThreadPool::create(threads, &pool).ok());
    for (int round = 0; round < 10; ++round) {
      Slow slow;
      pool->parallel()->run(pool->parallel()->pool, threads, &Slow::run, &slow);
      CHECK(slow.ended.load() == threads);
    }
  }
}

TEST_CASE("regions of few tasks, while most of a large pool sleeps") {
  std::shared_ptr<ThreadPool> pool;
  REQUIRE(ThreadPool::create(64, &pool).ok());
  for (int round = 0; round < 200; ++round) {
    const size_t num_tasks = static_cast<size_t>(round % 7 + 2);
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Marks marks(num_tasks, 64);
    pool->parallel()->run(pool->parallel()->pool, static_cast<int64_t>(num_tasks), &Marks::mark, &marks);
    for (auto& task : marks.tasks) CHECK(task.load() == 1);
  }
}

TEST_CASE("thread counts out of range are refused") {
  std::shared_ptr<ThreadPool> pool;
  CHECK(std::string(ThreadPool::create(-1, &pool).message()) == "num_threads is -1, expected 0 to 1024");
  CHECK(std::string(ThreadPool::create(5000, &pool).message()) == "num_threads is 5000, expected 0 to 1024");
}

TEST_CASE("eight threads, each with a session of its own, over one model") {
  const Model model = load(bundle_of({sum_rows_sample(), count_sample(), gather_sample()}).build());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&model, t] {
      Session session = session_of(model, t % 3 + 1);
      for (int64_t i = 1; i <= 40; ++i) {
        check_rows(&session, i % 5 + 1, 10 + t);
        auto count = session.run({}, "count");
        REQUIRE(count.ok());
        CHECK(*count->at(0).data<int64_t>() == i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("sixty-four threads, each with a session of one thread, over one model") {
  const Model model = load(bundle_of({sum_rows_sample(), count_sample()}).build());
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&model, &ready, t] {
      Session session = session_of(model, 1);
      ready.fetch_add(1);
      while (ready.load() < 64) std::this_thread::yield();
      for (int64_t i = 1; i <= 30; ++i) {
        check_rows(&session, i % 5 + 1, 10 + t);
        auto count = session.run({}, "count");
        REQUIRE(count.ok());
        CHECK(*count->at(0).data<int64_t>() == i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("sessions may share a pool, and outlive the caller's hold on it") {
  const Model model = load(bundle_of({sum_rows_sample()}).build());
  auto pool = Pool::create(2);
  REQUIRE(pool.ok());
  ht_session_options options = ht_session_options_default();
  options.pool = pool->get();
  auto first = model.new_session(&options), second = model.new_session(&options);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  *pool = Pool();
  std::thread other([&second] {
    for (int i = 0; i < 50; ++i) check_rows(&*second, 9, 100);
  });
  for (int i = 0; i < 50; ++i) check_rows(&*first, 7, 100);
  other.join();
}

namespace {

struct OwnThreads {
  std::atomic<int> num_regions{0};
  static void run(void* pool, int64_t num_tasks, void (*task)(void*, int64_t, int32_t), void* closure) {
    static_cast<OwnThreads*>(pool)->num_regions.fetch_add(1);
    std::thread other([=] {
      for (int64_t i = 1; i < num_tasks; i += 2) task(closure, i, 1);
    });
    for (int64_t i = 0; i < num_tasks; i += 2) task(closure, i, 0);
    other.join();
  }
};

}  // namespace

TEST_CASE("a server can bring its own threads") {
  const Model model = load(bundle_of({sum_rows_sample()}).build());
  OwnThreads own;
  const HtParallel parallel = {&own, &OwnThreads::run, 2};
  ht_session_options options = ht_session_options_default();
  options.parallel = &parallel;
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  check_rows(&*session, 10, 5);
  CHECK(own.num_regions.load() == 1);
  HtParallel broken = parallel;
  broken.nworkers = 0;
  options.parallel = &broken;
  CHECK(std::string(model.new_session(&options).status().message()) ==
        "ht_session_options.parallel: run is null, or nworkers is not 1 to 1024");
}

TEST_CASE("a program can decide which regions go to a pool") {
  struct Choice {
    const HtParallel* pool;
    bool spread = false;
    int num_regions[2] = {0, 0};
    static void run(void* choice, int64_t num_tasks, void (*task)(void*, int64_t, int32_t), void* closure) {
      Choice* self = static_cast<Choice*>(choice);
      ++self->num_regions[self->spread ? 1 : 0];
      if (self->spread) return self->pool->run(self->pool->pool, num_tasks, task, closure);
      for (int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
    }
  };
  const Model model = load(bundle_of({sum_rows_sample()}).build());
  auto pool = Pool::create(3);
  REQUIRE(pool.ok());
  REQUIRE(pool->parallel()->nworkers == 3);
  Choice choice{pool->parallel()};
  const HtParallel parallel = {&choice, &Choice::run, pool->parallel()->nworkers};
  ht_session_options options = ht_session_options_default();
  options.parallel = &parallel;
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  for (int i = 0; i < 20; ++i) {
    choice.spread = i % 2 == 1;
    check_rows(&*session, 10, 5);
  }
  CHECK(choice.num_regions[0] == 10);
  CHECK(choice.num_regions[1] == 10);
}

TEST_CASE("a session in use by another thread says so") {
  const Model model = load(bundle_of({sum_rows_sample()}).build());
  struct Nested {
    ht_session* session = nullptr;
    std::string message;
    static void run(void* pool, int64_t num_tasks, void (*task)(void*, int64_t, int32_t), void* closure) {
      Nested* self = static_cast<Nested*>(pool);
      self->message = outcome(ht_session_reset(self->session)).message;
      for (int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
    }
  } nested;
  const HtParallel parallel = {&nested, &Nested::run, 1};
  ht_session_options options = ht_session_options_default();
  options.parallel = &parallel;
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  nested.session = session->get();
  check_rows(&*session, 2, 2);
  CHECK(nested.message == "the session is in use by another thread; give each thread a session of its own");
}

TEST_CASE("models are loaded and freed by several threads at once") {
  const std::string bytes = add_bundle();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&bytes] {
      for (int i = 0; i < 25; ++i) {
        const Model model = load(bytes);
        Session session = session_of(model);
        const float x[] = {1, 2, 3};
        CHECK(session.run({Tensor::of(x, {1, 3}), Tensor::of(x, {1, 3})}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
