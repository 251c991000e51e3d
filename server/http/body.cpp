#include "server/http/body.h"

#include <algorithm>
#include <cstring>

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20, kFirst = 64U << 10;
constexpr std::size_t kPad = kAlignment;  // more than lies before the first byte; not counted, like what malloc takes

// Slow bodies would else hold everything for as long as their clients like.
Budget::Part part_of(std::size_t nbytes) { return nbytes > kLarge ? Budget::Part::kHalf : Budget::Part::kAll; }

}  // namespace

bool Body::reserve(std::size_t nbytes) noexcept {
  wanted_ = nbytes;
  const Budget& budget = *share_.budget();
  if (!budget.may_fit(wanted_, part_of(wanted_))) return false;
  if (budget.unwritten() == Budget::Unwritten::kCounted && !share_.grow_to(wanted_, part_of(wanted_))) return false;
  memory_.reset(static_cast<std::byte*>(std::malloc(nbytes + kPad)));
  capacity_ = nbytes;
  return memory_ != nullptr;
}

std::byte* Body::data() const { return memory_ == nullptr ? nullptr : aligned_place(memory_.get() + lead_) - lead_; }

bool Body::count_to(std::size_t nbytes) noexcept {
  if (!share_.grow_to(nbytes, part_of(nbytes))) return false;
  size_ = nbytes;
  return true;
}

bool Body::append(const void* data, std::size_t nbytes) noexcept {
  if (nbytes == 0) return true;
  if (size_ + nbytes > capacity_) {
    const std::size_t capacity = std::max({kFirst, 2 * capacity_, size_ + nbytes}), before = share_.nbytes();
    wanted_ = before + capacity;  // beside what is there, until it is copied
    if (!share_.grow_to(wanted_, part_of(wanted_))) return false;
    Memory old(static_cast<std::byte*>(std::malloc(capacity + kPad)));
    if (old == nullptr) return false;
    const std::byte* const from = this->data();
    memory_.swap(old);
    if (size_ > 0) std::memcpy(this->data(), from, size_);
    share_.shrink(before);
    capacity_ = capacity;
  }
  std::memcpy(this->data() + size_, data, nbytes);
  size_ += nbytes;
  return true;
}

Error Body::refusal() const { return share_.budget()->refusal("the body", wanted_, part_of(wanted_)); }

}  // namespace hardtack::serve::http
