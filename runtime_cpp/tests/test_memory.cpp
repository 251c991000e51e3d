// Who allocates what and when: counts every operator new and malloc of a run, uses the caller's allocator and limits.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <new>

#include "support/cubin.h"
#include "support/samples.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {
std::atomic<int64_t> num_news{0}, news_left{-1};  // the one behind so many fails; -1: none does
}

// The library and the tests share these; what aligned_alloc gives is seen through the caller's allocator below.
// Sanitizers bring their own, so there the count stays 0.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::noinline]] void* operator new(size_t nbytes) {
  num_news.fetch_add(1, std::memory_order_relaxed);
  if (news_left >= 0 && news_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(nbytes == 0 ? 1 : nbytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t nbytes, const std::nothrow_t&) noexcept {
  num_news.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(nbytes == 0 ? 1 : nbytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
#endif

namespace {

struct Arena {
  std::map<void*, size_t> blocks;
  size_t num_allocations = 0;
  bool misalign = false, refuse = false;

  static void* allocate(void* user, size_t nbytes, size_t alignment) {
    Arena* self = static_cast<Arena*>(user);
    if (self->refuse) return nullptr;
    ++self->num_allocations;
    void* memory = std::aligned_alloc(alignment, nbytes + alignment);
    if (self->misalign) memory = static_cast<char*>(memory) + 8;
    self->blocks[memory] = nbytes;
    return memory;
  }
  static void release(void* user, void* memory, size_t nbytes) {
    Arena* self = static_cast<Arena*>(user);
    CHECK(self->blocks[memory] == nbytes);
    self->blocks.erase(memory);
    std::free(self->misalign ? static_cast<char*>(memory) - 8 : memory);
  }
  ht_allocator allocator() { return {this, &Arena::allocate, &Arena::release}; }
};

struct Add {
  float x[300] = {}, y[300] = {};
  int64_t shape[2] = {2, 3};
  ht_tensor inputs[2] = {}, output = {};
  Add() {
    inputs[0] = {x, {1, 0}, 2, DTypeOf<float>::get(), shape, nullptr, 0};
    inputs[1] = {y, {1, 0}, 2, DTypeOf<float>::get(), shape, nullptr, 0};
  }
  Status run(Session* session, int64_t rows) {
    shape[0] = rows;
    return session->run("forward", inputs, 2, &output, 1);
  }
};

}  // namespace

TEST_CASE("after the first run of a shape nothing is allocated") {
  const Model model = load(bundle_of({add_sample(), sum_rows_sample(), while_sample()}).build());
  Arena arena;
  ht_session_options options = ht_session_options_default();
  options.num_threads = 2;
  options.allocator = arena.allocator();
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  Add add;
  float row_sums[100];
  int64_t out_shape[] = {100};
  ht_tensor rows_out = {row_sums, {1, 0}, 1, DTypeOf<float>::get(), out_shape, nullptr, 0}, count = {};
  const auto all = [&] {
    for (const int64_t rows : {100, 2, 50}) CHECK(add.run(&*session, rows).ok());
    add.shape[0] = 100;
    CHECK(session->run("rows", add.inputs, 1, &rows_out, 1).ok());
    CHECK(session->run("loop", nullptr, 0, &count, 1).ok());
  };
  all();
  const int64_t news = num_news.load();
  const size_t allocations = arena.num_allocations;
  for (int i = 0; i < 100; ++i) all();
  CHECK(num_news.load() == news);
  CHECK(arena.num_allocations == allocations);
}

TEST_CASE("a refused call allocates only its message, and leaks nothing") {
  const Model model = load(add_bundle());
  Session session = session_of(model);
  Add add;
  CHECK(add.run(&session, 2).ok());
  for (int i = 0; i < 10000; ++i) CHECK(add.run(&session, 2000).code() == HT_CONTRACT);
  CHECK(session.memory().num_cached_shapes == 1);
}

TEST_CASE("the caller's allocator gets everything back") {
  Arena arena;
  {
    const Model model = load(bundle_of({add_sample(), count_sample()}).build());
    ht_session_options options = ht_session_options_default();
    options.num_threads = 1;
    options.allocator = arena.allocator();
    auto session = model.new_session(&options);
    REQUIRE(session.ok());
    CHECK(arena.blocks.size() == 1);  // the state
    Add add;
    CHECK(add.run(&*session, 2).ok());
    const ht_memory_info info = session->memory();
    CHECK(info.arena_nbytes == 64);
    CHECK(info.states_nbytes == 64);
    CHECK(info.outputs_nbytes == 64);
    CHECK(info.num_cached_shapes == 1);
    CHECK(session->trim().ok());
    CHECK(arena.blocks.size() == 1);
    CHECK(session->memory().arena_nbytes == 0);
  }
  CHECK(arena.blocks.empty());
}

TEST_CASE("allocators that fail") {
  const Model model = load(add_bundle());
  Arena arena;
  ht_session_options options = ht_session_options_default();
  options.num_threads = 1;
  options.allocator = arena.allocator();
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  Add add;
  arena.refuse = true;
  Status failed = add.run(&*session, 2);
  CHECK(failed.code() == HT_OUT_OF_MEMORY);
  CHECK(std::string(failed.message()) == "the arena: cannot allocate 64 bytes");
  arena.refuse = false;
  CHECK(add.run(&*session, 2).ok());
  arena.refuse = true;
  CHECK(add.run(&*session, 100).code() == HT_OUT_OF_MEMORY);
  arena.refuse = false;
  CHECK(add.run(&*session, 100).ok());
  CHECK(add.run(&*session, 2).ok());

  Arena crooked;
  crooked.misalign = true;
  options.allocator = crooked.allocator();
  auto second = model.new_session(&options);
  REQUIRE(second.ok());
  Add other;
  CHECK(std::string(other.run(&*second, 2).message()) ==
        "the arena: the caller's allocator gave memory that is not aligned to 64 bytes");
  options.allocator.release = nullptr;
  CHECK(std::string(model.new_session(&options).status().message()) ==
        "ht_session_options.allocator: allocate and release must both be set, or neither");
}

TEST_CASE("max_nbytes is an error, not a suggestion") {
  const Model model = load(add_bundle());
  ht_session_options options = ht_session_options_default();
  options.num_threads = 1;
  options.max_nbytes = 1000;
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  Add add;
  CHECK(add.run(&*session, 2).ok());
  const Status failed = add.run(&*session, 100);
  CHECK(failed.code() == HT_OUT_OF_MEMORY);
  CHECK(std::string(failed.message()) == "the arena needs 1216 bytes; the session holds 128 of its max_nbytes 1000");
  CHECK(add.run(&*session, 2).ok());
}

TEST_CASE("the shapes kept ready are bounded") {
  const Model model = load(add_bundle());
  ht_session_options options = ht_session_options_default();
  options.num_threads = 1;
  options.max_cached_shapes = 3;
  auto session = model.new_session(&options);
  REQUIRE(session.ok());
  Add add;
  for (const int64_t rows : {1, 2, 3, 4, 5, 1, 2}) {
    CHECK(add.run(&*session, rows).ok());
    CHECK(add.output.shape[0] == rows);
  }
  CHECK(session->memory().num_cached_shapes == 3);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("cuda: where memory fails behind a launch, the device is waited for") {
  const std::string bytes = cuda_bundle_of({cuda_add_sample()}).build();
  int num_failed = 0;
  for (int64_t n = 0;; ++n) {
    CAPTURE(n);
    const NullDriver driver;
    const ht_load_options options = driver.options();
    const Model model = load(bytes, &options);
    auto session = model.new_session();
    REQUIRE(session.ok());
    Add add;
    null_take("log");
    null_set("HARDTACK_NULL_FAIL", "cuLaunchKernelEx=1@2");  // of which a sentence is made, behind the first launch
    news_left = n;
    const Status status = add.run(&*session, 2);
    const bool failed = news_left.exchange(-1) < 0;
    null_set("HARDTACK_NULL_FAIL", "");
    if (!failed) break;
    CHECK(status.code() == HT_OUT_OF_MEMORY);
    const std::string log = null_take("log");
    const size_t launch = log.rfind("launch add_f32");
    if (launch == std::string::npos) continue;
    ++num_failed;
    CHECK_MESSAGE(log.find("synchronize", launch) != std::string::npos, log);
  }
  CHECK(num_failed > 0);
}
#endif
