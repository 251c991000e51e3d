#include "server/core/input_memory.h"

#include <cstring>

#include "server/core/protocol.h"

namespace hardtack::serve {

Failure InputMemory::use(Input& input, const void* data, std::size_t nbytes) {
  input.data = data;
  input.nbytes = nbytes;
  if (nbytes == 0 || aligned(data, input.dtype)) return std::nullopt;
  std::shared_ptr<std::byte> block = allocate(nbytes);
  if (block == nullptr) return Error{Code::kNoMemory, "no memory for " + input_named(input.name)};
  std::memcpy(block.get(), data, nbytes);
  hold(input, std::move(block), nbytes);
  return std::nullopt;
}

void InputMemory::hold(Input& input, std::shared_ptr<std::byte> block, std::size_t nbytes) {
  input.data = block.get();
  input.nbytes = nbytes;
  blocks_.push_back(std::move(block));
}

}  // namespace hardtack::serve
