// Ed25519 signatures (RFC 8032, section 5.1), verification only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hardtack::rt {

/// SHA-512 (FIPS 180-4) of two or three pieces, one after the other.
class Sha512 {
 public:
  void update(const void* data, size_t nbytes);
  /// Ends the hash; call once.
  std::array<uint8_t, 64> finish();

 private:
  void compress(const uint8_t* block);

  uint64_t state_[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                        0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
  uint64_t nbytes_ = 0;
  uint8_t block_[128] = {};
};

/// Whether `signature` is a good one of `message` by the owner of `public_key`. Nothing here is secret, so the time
/// that it takes may depend on the data.
bool ed25519_verify(const uint8_t signature[64], const uint8_t public_key[32], const void* message, size_t nbytes);

}  // namespace hardtack::rt
