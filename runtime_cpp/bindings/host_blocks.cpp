#include "host_blocks.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace hardtack::py_binding {
namespace {

constexpr size_t kAlignment = 64;                 // what kernels like best, and what torch gives
constexpr size_t kLeastKept = size_t{128} << 10;  // malloc itself keeps smaller ones
constexpr size_t kMostKept = 64;                  // blocks; take() looks through them
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

void* allocate(size_t nbytes) {
  const size_t alignment = nbytes >= kHugePage ? kHugePage : kAlignment;
  const size_t rounded = round_up(nbytes > 0 ? nbytes : 1, alignment);
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (nbytes >= kHugePage)
    ::madvise(memory, rounded, MADV_HUGEPAGE);  // fewer faults; without huge pages it does nothing
  return memory;
}

}  // namespace

HostBlocks::HostBlocks() { kept_.reserve(kMostKept); }  // give() allocates nothing

void* HostBlocks::take(size_t nbytes) {
  run_nbytes_ += nbytes;
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].nbytes != nbytes) continue;
    void* memory = kept_[i].memory;
    kept_nbytes_ -= nbytes;
    kept_[i] = kept_.back();
    kept_.pop_back();
    return memory;
  }
  if (nbytes >= kLeastKept) trim();  // sizes have changed
  return allocate(nbytes);
}

void HostBlocks::give(void* memory, size_t nbytes) noexcept {
  if (nbytes < kLeastKept || kept_nbytes_ + nbytes > run_nbytes_ || kept_.size() == kMostKept) return std::free(memory);
  kept_.push_back({memory, nbytes});
  kept_nbytes_ += nbytes;
}

void HostBlocks::trim() noexcept {
  for (const Block& block : kept_) std::free(block.memory);
  kept_.clear();
  kept_nbytes_ = 0;
}

void HostBlocks::close() noexcept {
  trim();
  run_nbytes_ = 0;
}

}  // namespace hardtack::py_binding
