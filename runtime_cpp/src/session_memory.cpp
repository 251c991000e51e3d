#include "session_memory.h"

#include "checked.h"

namespace hardtack::rt {

Status Memory::grow(Block* block, int64_t nbytes, const char* what) {
  if (block->data != nullptr && nbytes <= block->capacity) return Status();
  release(block);
  const int64_t capacity = nbytes == 0 ? alignment_ : round_up(nbytes, alignment_);
  const size_t size = static_cast<size_t>(capacity);
  if (max_nbytes_ > 0 && (used_nbytes_ > max_nbytes_ || size > max_nbytes_ - used_nbytes_)) {
    return error(HT_OUT_OF_MEMORY, "%s needs %zu bytes; the session holds %llu of its max_nbytes %llu", what, size,
                 static_cast<unsigned long long>(used_nbytes_), static_cast<unsigned long long>(max_nbytes_));
  }
  void* memory = nullptr;
  if (allocator_.allocate != nullptr) {
    memory = allocator_.allocate(allocator_.user, size, static_cast<size_t>(alignment_));
    if (memory == nullptr) return error(HT_OUT_OF_MEMORY, "%s: cannot allocate %zu bytes", what, size);
  } else {
    HT_RETURN_IF_ERROR(in_context(queue_.allocate(size, &memory), what));
  }
  if (reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(alignment_) != 0) {
    allocator_.release(allocator_.user, memory, size);
    return error(HT_INVALID_ARGUMENT, "%s: the caller's allocator gave memory that is not aligned to %lld bytes", what,
                 static_cast<long long>(alignment_));
  }
  block->data = memory;
  block->capacity = capacity;
  used_nbytes_ += size;
  return Status();
}

void Memory::release(Block* block) {
  if (block->data == nullptr) return;
  const size_t size = static_cast<size_t>(block->capacity);
  if (allocator_.allocate != nullptr) {
    (void)queue_.synchronize(nullptr);  // what was enqueued may still use it
    allocator_.release(allocator_.user, block->data, size);
  } else {
    queue_.release(block->data);
  }
  used_nbytes_ -= size;
  *block = Block();
}

Status Memory::grow_host(Block* block, int64_t nbytes, const char* what) {
  if (block->data != nullptr && nbytes <= block->capacity) return Status();
  release_host(block);
  const int64_t capacity = nbytes == 0 ? alignment_ : round_up(nbytes, alignment_);
  HT_RETURN_IF_ERROR(in_context(queue_.allocate_host(static_cast<size_t>(capacity), &block->data), what));
  block->capacity = capacity;
  return Status();
}

void Memory::release_host(Block* block) {
  if (block->data != nullptr) queue_.release_host(block->data);
  *block = Block();
}

}  // namespace hardtack::rt
