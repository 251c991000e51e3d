#include "server/tests/failing.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> armed{false}, rest_fails{false};
std::atomic<long> first{0}, seen{0};

bool fails() {
  if (!armed) return false;
  const long number = seen++;
  return rest_fails ? number >= first : number == first;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t nbytes) {
  void* memory = fails() ? nullptr : std::malloc(nbytes == 0 ? 1 : nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t nbytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(nbytes == 0 ? 1 : nbytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hardtack::serve::testing {

Failing::Failing(long good, bool rest) {
  rest_fails = rest;
  first = good;
  seen = 0;
  armed = true;
}

Failing::~Failing() { armed = false; }

bool Failing::came() { return seen > first; }

void with_each_failing(const std::function<bool(long good, bool rest)>& turn) {
  for (const bool rest : {false, true}) {
    long good = 0;
    while (turn(good, rest)) ++good;
    CHECK(good > 2);
  }
}

}  // namespace hardtack::serve::testing
