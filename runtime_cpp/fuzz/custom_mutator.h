// A mutator of one's own under libFuzzer's interface, LLVMFuzzerCustomMutator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

/// The mutator of bytes: libFuzzer's, or the driver's where there is none.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t nbytes, size_t most_nbytes);

namespace hardtack::fuzz {

/// What LLVMFuzzerCustomMutator has to do with a mutator of texts: one to four changes, one time in eight of bytes instead.
/// A text that became too long is given up for a change of bytes.
inline size_t mutate_with(std::string (*mutate)(const std::string&, std::mt19937_64&), uint8_t* data, size_t nbytes,
                          size_t most_nbytes, unsigned seed) {
  std::mt19937_64 random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, nbytes, most_nbytes);
  std::string text(reinterpret_cast<const char*>(data), nbytes);
  for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) text = mutate(text, random);
  if (text.size() > most_nbytes) return LLVMFuzzerMutate(data, nbytes, most_nbytes);
  text.copy(reinterpret_cast<char*>(data), text.size());
  return text.size();
}

}  // namespace hardtack::fuzz
