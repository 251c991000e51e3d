// The two checksums of a bundle: SHA-256 (FIPS 180-4) and ZIP's CRC-32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hardtack::rt {

class Sha256 {
 public:
  /// `portable`: without the CPU's own instructions, as on CPUs that have none.
  explicit Sha256(bool portable = false) : portable_(portable) {}
  void update(const void* data, size_t nbytes);
  /// Ends the hash; call once.
  std::array<uint8_t, 32> finish();

 private:
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t nbytes_ = 0;
  uint8_t block_[64] = {};
  bool portable_;
};

/// 64 lower-case hex digits.
std::string hex(const std::array<uint8_t, 32>& digest);
std::string sha256_hex(const void* data, size_t nbytes);

/// Continues a CRC-32 (start with 0).
uint32_t crc32(uint32_t crc, const void* data, size_t nbytes);

}  // namespace hardtack::rt
