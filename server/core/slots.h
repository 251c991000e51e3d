// How many threads of a protocol may run models at the same time: one is always left to read what else comes.
#ifndef HARDTACK_SERVER_CORE_SLOTS_H
#define HARDTACK_SERVER_CORE_SLOTS_H

#include <atomic>

namespace hardtack::serve {

/// Safe from any thread.
class Slots {
 public:
  explicit Slots(int count) : free_(count) {}

  /// A slot, if there was one: given back at its end. Must not outlive the slots.
  class Taken {
   public:
    Taken() = default;
    explicit Taken(Slots& slots) : slots_(slots.take() ? &slots : nullptr) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() {
      if (slots_ != nullptr) ++slots_->free_;
    }
    explicit operator bool() const { return slots_ != nullptr; }

   private:
    Slots* slots_ = nullptr;
  };

 private:
  bool take() noexcept {
    int free = free_.load();
    while (free > 0 && !free_.compare_exchange_weak(free, free - 1)) {
    }
    return free > 0;
  }

  std::atomic<int> free_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_SLOTS_H
