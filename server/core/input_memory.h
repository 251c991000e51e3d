// What the inputs of one request point into: the message that brought them, and blocks for those that do not lie in it as
// kernels need them.
#ifndef HARDTACK_SERVER_CORE_INPUT_MEMORY_H
#define HARDTACK_SERVER_CORE_INPUT_MEMORY_H

#include <memory>
#include <vector>

#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/core/request.h"

namespace hardtack::serve {

/// Becomes Request::keep_alive. One thread at a time.
class InputMemory {
 public:
  InputMemory(std::shared_ptr<const void> message, Budget& budget) : message_(std::move(message)), budget_(budget) {}

  /// The input's elements are these bytes of the message: in place where they are aligned, else copied. kNoMemory, kTooLarge.
  Failure use(Input& input, const void* data, std::size_t nbytes);
  /// A block of its own for elements that do not lie in the message as they are needed. kNoMemory, kTooLarge.
  Outcome<std::byte*> make(Input& input, std::size_t nbytes);
  /// They are a block of their own.
  void hold(Input& input, std::shared_ptr<std::byte> block, std::size_t nbytes);

 private:
  std::shared_ptr<const void> message_;
  Budget& budget_;
  std::vector<std::shared_ptr<std::byte>> blocks_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_INPUT_MEMORY_H
