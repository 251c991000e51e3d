// The body of a request while it comes in: memory that is counted as it fills.
#ifndef HARDTACK_SERVER_HTTP_BODY_H
#define HARDTACK_SERVER_HTTP_BODY_H

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/core/memory.h"

namespace hardtack::serve::http {

/// Bytes that start on a multiple of 64 behind `lead` of them. One thread at a time.
class Body {
 public:
  Body(Budget& budget, std::size_t lead) : share_(budget), lead_(lead % kAlignment) {}

  std::byte* data() const;
  std::size_t size() const { return size_; }

  /// Address space for a body of a known size: what nobody has written takes no memory, and is counted only if the Budget
  /// says so. False: it does not fit, or there is none.
  bool reserve(std::size_t nbytes) noexcept;
  /// Counts the next bytes of such a body; false: there is no memory for them. A large body leaves half of the budget to
  /// others.
  bool count_to(std::size_t nbytes) noexcept;
  /// Appends to a body of unknown size; false: there is no memory.
  bool append(const void* data, std::size_t nbytes) noexcept;
  /// Why one of these said no.
  Error refusal() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  Share share_;
  std::size_t lead_, size_ = 0, capacity_ = 0;
  std::size_t wanted_ = 0;  // in all, when it last asked for memory
  Memory memory_;
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_BODY_H
