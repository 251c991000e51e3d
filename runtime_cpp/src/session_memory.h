// A session's memory: from the device or the caller's allocator, counted against a limit.
#pragma once

#include "device.h"

namespace hardtack::rt {

/// A block that grows; its content does not survive growing.
struct Block {
  void* data = nullptr;
  int64_t capacity = 0;
};

class Memory {
 public:
  Memory(Queue* queue, int64_t alignment, const ht_allocator& allocator, uint64_t max_nbytes)
      : queue_(*queue), alignment_(alignment), allocator_(allocator), max_nbytes_(max_nbytes) {}

  /// Makes the block hold `nbytes` (never null after it, even for 0). `what` names it in errors.
  Status grow(Block* block, int64_t nbytes, const char* what);
  void release(Block* block);
  /// The same in host memory, which the caller's allocator does not give and max_nbytes does not count.
  Status grow_host(Block* block, int64_t nbytes, const char* what);
  void release_host(Block* block);

 private:
  Queue& queue_;
  int64_t alignment_;
  ht_allocator allocator_;
  uint64_t max_nbytes_;
  uint64_t used_nbytes_ = 0;
};

}  // namespace hardtack::rt
