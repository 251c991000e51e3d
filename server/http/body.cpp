#include "server/http/body.h"

#include <algorithm>
#include <cstring>

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20, kFirst = 64U << 10;

std::byte* aligned_memory(std::size_t nbytes) {
  return static_cast<std::byte*>(std::aligned_alloc(64, (nbytes + 63) / 64 * 64));
}

}  // namespace

// Slow bodies would else hold everything for as long as their clients like.
bool Body::has_room(std::size_t nbytes) const {
  if (nbytes <= kLarge) return true;
  const Budget& budget = *share_.budget();
  return budget.used() + nbytes - share_.nbytes() <= budget.limit() / 2;
}

bool Body::reserve(std::size_t nbytes) noexcept {
  memory_.reset(aligned_memory(nbytes + pad_));
  capacity_ = nbytes;
  return memory_ != nullptr;
}

bool Body::count_to(std::size_t nbytes) noexcept {
  if (!has_room(nbytes) || !share_.grow_to(nbytes + pad_)) return false;
  size_ = nbytes;
  return true;
}

bool Body::append(const void* data, std::size_t nbytes) noexcept {
  if (nbytes == 0) return true;
  if (size_ + nbytes > capacity_) {
    const std::size_t wanted = std::max({kFirst, 2 * capacity_, size_ + nbytes});
    if (!has_room(wanted) || !share_.grow(wanted + pad_)) return false;  // beside what is there, until it is copied
    std::unique_ptr<std::byte, Free> fresh(aligned_memory(wanted + pad_));
    if (fresh == nullptr) return false;
    if (size_ > 0) std::memcpy(fresh.get() + pad_, this->data(), size_);
    memory_ = std::move(fresh);
    Share now(*share_.budget());
    now.charge(wanted + pad_);
    share_ = std::move(now);
    capacity_ = wanted;
  }
  std::memcpy(this->data() + size_, data, nbytes);
  size_ += nbytes;
  return true;
}

}  // namespace hardtack::serve::http
