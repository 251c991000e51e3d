#include "server/http/body.h"

#include <algorithm>
#include <cstring>

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20, kFirst = 64U << 10;

std::byte* aligned_memory(std::size_t nbytes) {
  return static_cast<std::byte*>(std::aligned_alloc(64, (nbytes + 63) / 64 * 64));
}

// Slow bodies would else hold everything for as long as their clients like.
Budget::Part part_of(std::size_t nbytes) { return nbytes > kLarge ? Budget::Part::kHalf : Budget::Part::kAll; }

}  // namespace

bool Body::reserve(std::size_t nbytes) noexcept {
  wanted_ = nbytes + pad_;
  const Budget& budget = *share_.budget();
  if (!budget.may_fit(wanted_, part_of(wanted_))) return false;
  if (budget.unwritten() == Budget::Unwritten::kCounted && !share_.grow_to(wanted_, part_of(wanted_))) return false;
  memory_.reset(aligned_memory(wanted_));
  capacity_ = nbytes;
  return memory_ != nullptr;
}

bool Body::count_to(std::size_t nbytes) noexcept {
  if (!share_.grow_to(nbytes + pad_, part_of(nbytes + pad_))) return false;
  size_ = nbytes;
  return true;
}

bool Body::append(const void* data, std::size_t nbytes) noexcept {
  if (nbytes == 0) return true;
  if (size_ + nbytes > capacity_) {
    const std::size_t capacity = std::max({kFirst, 2 * capacity_, size_ + nbytes}), before = share_.nbytes();
    wanted_ = before + capacity + pad_;  // beside what is there, until it is copied
    if (!share_.grow_to(wanted_, part_of(wanted_))) return false;
    std::unique_ptr<std::byte, Free> fresh(aligned_memory(capacity + pad_));
    if (fresh == nullptr) return false;
    if (size_ > 0) std::memcpy(fresh.get() + pad_, this->data(), size_);
    memory_ = std::move(fresh);
    share_.shrink(before);
    capacity_ = capacity;
  }
  std::memcpy(this->data() + size_, data, nbytes);
  size_ += nbytes;
  return true;
}

Error Body::refusal() const { return share_.budget()->refusal("the body", wanted_, part_of(wanted_)); }

}  // namespace hardtack::serve::http
