#include "server/core/budget.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "server/core/memory.h"

namespace hardtack::serve {

namespace {

std::size_t rounded(std::size_t nbytes, std::size_t alignment) {
  return nbytes == 0 ? alignment : (nbytes + alignment - 1) / alignment * alignment;
}

std::byte* counted(Budget& budget, std::size_t nbytes, std::size_t alignment) noexcept {
  if (!budget.take(nbytes)) return nullptr;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, nbytes));
  if (memory == nullptr) budget.give(nbytes);
  return memory;
}

}  // namespace

std::uint64_t Budget::most(Part part) const noexcept {
  const std::uint64_t charged = std::min<std::uint64_t>(charged_, limit_);
  return charged + share_of(part, limit_ - charged);
}

bool Budget::take(std::uint64_t nbytes, Part part) noexcept {
  const std::uint64_t most = this->most(part);
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (used > most || nbytes > most - used) {
      ++refused_;
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used + nbytes, std::memory_order_relaxed));
  return true;
}

std::shared_ptr<std::byte> Budget::allocate(std::size_t nbytes) noexcept {
  if (nbytes > SIZE_MAX / 2) return nullptr;
  const std::size_t whole = std::max(kAlignment, aligned_up(nbytes));
  if (!take(whole)) return nullptr;
  auto* const block = static_cast<std::byte*>(std::malloc(whole + kAlignment));
  if (block == nullptr) {
    give(whole);
    return nullptr;
  }
  try {
    return std::shared_ptr<std::byte>(aligned_place(block), [this, whole, block](std::byte*) {
      std::free(block);
      give(whole);
    });
  } catch (const std::bad_alloc&) {  // it has freed the memory
    return nullptr;
  }
}

ht_allocator Budget::allocator() noexcept {
  ht_allocator functions{};
  functions.user = this;
  functions.allocate = [](void* user, std::size_t nbytes, std::size_t alignment) -> void* {
    if (nbytes > SIZE_MAX / 2) return nullptr;
    return counted(*static_cast<Budget*>(user), rounded(nbytes, alignment), alignment);
  };
  // Sessions ask for multiples of the alignment, so that what was counted is what is given back.
  functions.release = [](void* user, void* memory, std::size_t nbytes) {
    std::free(memory);
    static_cast<Budget*>(user)->give(nbytes);
  };
  return functions;
}

Error Budget::refusal(const std::string& what, std::uint64_t nbytes, Part part) const {
  const std::string wanted = "no memory for " + what + ": it takes " + std::to_string(nbytes) + " bytes";
  if (!may_fit(nbytes, part)) {
    const char* who = part == Part::kAll ? ", and all requests together may take "
                                         : ", and it may take half of what all requests together may, ";
    return {Code::kTooLarge, wanted + who + std::to_string(share_of(part, limit_)) + " (--max-memory); send less"};
  }
  const std::uint64_t used = used_, most = this->most(part);
  const std::string free = std::to_string(used < most ? most - used : 0);
  return {Code::kNoMemory, wanted + ", and " + free + " of the server's " + std::to_string(limit_) +
                               (part == Part::kAll ? " are free; try again later"
                                                   : " are free for it, beside the half that is left to others; try "
                                                     "again later")};
}

}  // namespace hardtack::serve
