#include "server/core/input_memory.h"

#include <cstring>

#include "server/core/protocol.h"

namespace hardtack::serve {

Failure InputMemory::use(Input& input, const void* data, std::size_t nbytes) {
  input.data = data;
  input.nbytes = nbytes;
  if (nbytes == 0 || aligned(data, input.dtype)) return std::nullopt;
  auto block = make(input, nbytes);
  if (!block.ok()) return block.error();
  std::memcpy(*block, data, nbytes);
  return std::nullopt;
}

Outcome<std::byte*> InputMemory::make(Input& input, std::size_t nbytes) {
  std::shared_ptr<std::byte> block = budget_.allocate(nbytes);
  if (block == nullptr) return budget_.refusal(input_named(input.name), nbytes);
  std::byte* const start = block.get();
  hold(input, std::move(block), nbytes);
  return start;
}

void InputMemory::hold(Input& input, std::shared_ptr<std::byte> block, std::size_t nbytes) {
  input.data = block.get();
  input.nbytes = nbytes;
  blocks_.push_back(std::move(block));
}

}  // namespace hardtack::serve
