#include <cstring>

#include "ed25519.h"

namespace hardtack::rt {
namespace {

// The first 64 bits of the fractional parts of the cube roots of the first 80 primes.
constexpr uint64_t kRound[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc, 0x3956c25bf348b538,
    0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118, 0xd807aa98a3030242, 0x12835b0145706fbe,
    0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2, 0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235,
    0xc19bf174cf692694, 0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5, 0x983e5152ee66dfab,
    0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4, 0xc6e00bf33da88fc2, 0xd5a79147930aa725,
    0x06ca6351e003826f, 0x142929670a0e6e70, 0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed,
    0x53380d139d95b3df, 0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30, 0xd192e819d6ef5218,
    0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8, 0x19a4c116b8d2d0c8, 0x1e376c085141ab53,
    0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8, 0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373,
    0x682e6ff3d6b2b8a3, 0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b, 0xca273eceea26619c,
    0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178, 0x06f067aa72176fba, 0x0a637dc5a2c898a6,
    0x113f9804bef90dae, 0x1b710b35131c471b, 0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc,
    0x431d67c49c100d4c, 0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817};

uint64_t rotate(uint64_t x, int n) { return (x >> n) | (x << (64 - n)); }

}  // namespace

void Sha512::compress(const uint8_t* block) {
  uint64_t w[80];
  for (int i = 0; i < 16; ++i) {
    w[i] = 0;
    for (int k = 0; k < 8; ++k) w[i] = w[i] << 8 | block[8 * i + k];
  }
  for (int i = 16; i < 80; ++i) {
    const uint64_t s0 = rotate(w[i - 15], 1) ^ rotate(w[i - 15], 8) ^ (w[i - 15] >> 7);
    const uint64_t s1 = rotate(w[i - 2], 19) ^ rotate(w[i - 2], 61) ^ (w[i - 2] >> 6);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint64_t v[8];
  std::memcpy(v, state_, sizeof v);
  for (int i = 0; i < 80; ++i) {
    const uint64_t s1 = rotate(v[4], 14) ^ rotate(v[4], 18) ^ rotate(v[4], 41);
    const uint64_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound[i] + w[i];
    const uint64_t s0 = rotate(v[0], 28) ^ rotate(v[0], 34) ^ rotate(v[0], 39);
    const uint64_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    for (int k = 7; k > 0; --k) v[k] = v[k - 1];
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) state_[i] += v[i];
}

void Sha512::update(const void* data, size_t nbytes) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  while (nbytes > 0) {
    const size_t pending = nbytes_ % 128;
    const size_t take = nbytes < 128 - pending ? nbytes : 128 - pending;
    std::memcpy(block_ + pending, bytes, take);
    nbytes_ += take;
    bytes += take;
    nbytes -= take;
    if (pending + take == 128) compress(block_);
  }
}

std::array<uint8_t, 64> Sha512::finish() {
  const uint64_t nbits = nbytes_ * 8;
  uint8_t tail[144] = {0x80};
  const size_t padding = (nbytes_ % 128 < 112 ? 112 : 240) - nbytes_ % 128;
  for (size_t i = 0; i < 8; ++i) tail[padding + 8 + i] = static_cast<uint8_t>(nbits >> (56 - 8 * i));
  update(tail, padding + 16);
  std::array<uint8_t, 64> digest;
  for (size_t i = 0; i < 64; ++i) digest[i] = static_cast<uint8_t>(state_[i / 8] >> (56 - 8 * (i % 8)));
  return digest;
}

}  // namespace hardtack::rt
