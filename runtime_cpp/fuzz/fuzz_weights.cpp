// The header of a weights member; the bytes are the member.
#include <string_view>

#include "safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t nbytes) {
  using namespace hardtack::rt;
  uint64_t header_nbytes = 0;
  WeightsHeader header;
  if (nbytes < 8 || !weights_header_nbytes(data, nbytes, "weights", &header_nbytes).ok()) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), header_nbytes);
  if (!parse_weights_header(text, nbytes, "weights", &header).ok()) return 0;
  for (const WeightTensor& tensor : header.tensors) {
    if (tensor.offset > nbytes || tensor.nbytes > nbytes - tensor.offset) __builtin_trap();
  }
  return 0;
}
