#include <cstring>

#include "hash.h"

namespace hardtack::rt {
namespace {

// Slicing by 8 (Kounavis and Berry, 2005): table[k][b] is the CRC of byte b followed by k zero bytes.
struct Tables {
  uint32_t row[8][256];
};

constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    t.row[0][b] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) t.row[k][b] = (t.row[k - 1][b] >> 8) ^ t.row[0][t.row[k - 1][b] & 0xFF];
  }
  return t;
}

constexpr Tables kTables = make_tables();

uint32_t little_endian_32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap32(value);
#endif
  return value;
}

}  // namespace

uint32_t crc32(uint32_t crc, const void* data, size_t nbytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  const auto& t = kTables.row;
  crc = ~crc;
  for (; nbytes >= 8; nbytes -= 8, p += 8) {
    const uint32_t a = little_endian_32(p) ^ crc;
    const uint32_t b = little_endian_32(p + 4);
    crc = t[7][a & 0xFF] ^ t[6][(a >> 8) & 0xFF] ^ t[5][(a >> 16) & 0xFF] ^ t[4][a >> 24] ^ t[3][b & 0xFF] ^
          t[2][(b >> 8) & 0xFF] ^ t[1][(b >> 16) & 0xFF] ^ t[0][b >> 24];
  }
  for (; nbytes > 0; --nbytes, ++p) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xFF];
  return ~crc;
}

}  // namespace hardtack::rt
