#include "session_memory.h"

#include "checked.h"

namespace hardtack::rt {

Status Memory::grow(Block* block, int64_t nbytes, const char* what) {
  if (block->data != nullptr && nbytes <= block->capacity) return Status();
  release(block);
  const int64_t capacity = nbytes == 0 ? kMemoryAlignment : round_up(nbytes, kMemoryAlignment);
  const size_t size = static_cast<size_t>(capacity);
  if (max_nbytes_ > 0 && (used_nbytes_ > max_nbytes_ || size > max_nbytes_ - used_nbytes_)) {
    return error(HT_OUT_OF_MEMORY, "%s needs %zu bytes; the session holds %llu of its max_nbytes %llu", what, size,
                 static_cast<unsigned long long>(used_nbytes_), static_cast<unsigned long long>(max_nbytes_));
  }
  void* memory = allocator_.allocate != nullptr
                     ? allocator_.allocate(allocator_.user, size, static_cast<size_t>(kMemoryAlignment))
                     : device_.allocate(size, static_cast<size_t>(kMemoryAlignment));
  if (memory == nullptr) return error(HT_OUT_OF_MEMORY, "%s: cannot allocate %zu bytes", what, size);
  if (reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(kMemoryAlignment) != 0) {
    allocator_.release(allocator_.user, memory, size);
    return error(HT_INVALID_ARGUMENT, "%s: the caller's allocator gave memory that is not aligned to 64 bytes", what);
  }
  block->data = memory;
  block->capacity = capacity;
  used_nbytes_ += size;
  return Status();
}

void Memory::release(Block* block) {
  if (block->data == nullptr) return;
  const size_t size = static_cast<size_t>(block->capacity);
  if (allocator_.allocate != nullptr)
    allocator_.release(allocator_.user, block->data, size);
  else
    device_.release(block->data, size);
  used_nbytes_ -= size;
  *block = Block();
}

}  // namespace hardtack::rt
