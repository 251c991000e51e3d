#include "ed25519.h"

#include <cstring>

namespace hardtack::rt {
namespace {

__extension__ typedef unsigned __int128 Wide;

// An element of the field of integers modulo p = 2^255 - 19: the sum of limb[i] * 2^(51 i). Limbs stay below 2^54
// between operations, so that products of two fit into 128 bits with room for the sums.
struct Field {
  uint64_t limb[5] = {};
};

constexpr uint64_t kMask = (uint64_t{1} << 51) - 1;

Field small(uint64_t value) {
  Field f;
  f.limb[0] = value;
  return f;
}

// Brings the limbs below 2^51 plus a little; 2^255 is 19.
Field carried(Field f) {
  for (int i = 0; i < 4; ++i) {
    f.limb[i + 1] += f.limb[i] >> 51;
    f.limb[i] &= kMask;
  }
  f.limb[0] += 19 * (f.limb[4] >> 51);
  f.limb[4] &= kMask;
  f.limb[1] += f.limb[0] >> 51;
  f.limb[0] &= kMask;
  return f;
}

Field operator+(const Field& a, const Field& b) {
  Field f;
  for (int i = 0; i < 5; ++i) f.limb[i] = a.limb[i] + b.limb[i];
  return carried(f);
}

Field operator-(const Field& a, const Field& b) {
  // 8 p, limb by limb, keeps the differences positive.
  Field f;
  for (int i = 0; i < 5; ++i) f.limb[i] = a.limb[i] + 8 * (i == 0 ? kMask - 18 : kMask) - b.limb[i];
  return carried(f);
}

Field operator*(const Field& a, const Field& b) {
  Wide sums[5] = {};
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 5; ++k) {
      const uint64_t factor = i + k >= 5 ? 19 : 1;
      sums[(i + k) % 5] += Wide{a.limb[i]} * (b.limb[k] * factor);
    }
  }
  Field f;
  Wide carry = 0;
  for (int i = 0; i < 5; ++i) {
    sums[i] += carry;
    f.limb[i] = static_cast<uint64_t>(sums[i]) & kMask;
    carry = sums[i] >> 51;
  }
  const Wide low = Wide{f.limb[0]} + carry * 19;
  f.limb[0] = static_cast<uint64_t>(low) & kMask;
  f.limb[1] += static_cast<uint64_t>(low >> 51);
  return f;
}

// base to the power 2^bits - below, with 2 <= below <= 21.
Field power(const Field& base, int bits, uint8_t below) {
  Field result = small(1);
  for (int bit = bits - 1; bit >= 0; --bit) {
    result = result * result;
    const bool set = bit >= 5 || ((32 - below) >> bit & 1) != 0;  // 2^bits - below has ones above its low five bits
    if (set) result = result * base;
  }
  return result;
}

Field inverse(const Field& f) { return power(f, 255, 21); }

std::array<uint8_t, 32> encode(const Field& value) {
  Field f = carried(carried(value));
  // Now 0 <= f < 2^255 + small; subtract p once if f + 19 passes 2^255.
  uint64_t carry = 19;
  for (int i = 0; i < 5; ++i) carry = (f.limb[i] + carry) >> 51;
  f.limb[0] += 19 * carry;
  for (int i = 0; i < 4; ++i) {
    f.limb[i + 1] += f.limb[i] >> 51;
    f.limb[i] &= kMask;
  }
  f.limb[4] &= kMask;
  std::array<uint8_t, 32> bytes = {};
  for (size_t bit = 0; bit < 255; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | (f.limb[bit / 51] >> (bit % 51) & 1) << (bit % 8));
  }
  return bytes;
}

bool operator==(const Field& a, const Field& b) { return encode(a) == encode(b); }
bool is_zero(const Field& f) { return f == Field(); }
bool is_odd(const Field& f) { return (encode(f)[0] & 1) != 0; }

// The low 255 bits; false when they are p or more.
bool decode(const uint8_t bytes[32], Field* f) {
  *f = Field();
  for (size_t bit = 0; bit < 255; ++bit) f->limb[bit / 51] |= uint64_t{bytes[bit / 8] >> (bit % 8) & 1u} << (bit % 51);
  std::array<uint8_t, 32> again = encode(*f);
  again[31] = static_cast<uint8_t>(again[31] | (bytes[31] & 0x80));
  return std::memcmp(again.data(), bytes, 32) == 0;
}

// The curve's d = -121665 / 121666.
Field curve_d() { return (small(0) - small(121665)) * inverse(small(121666)); }

// A point in extended coordinates: x = X/Z, y = Y/Z, X Y = Z T.
struct Point {
  Field x, y, z, t;
};

constexpr Point kNeutral = {Field(), {{1, 0, 0, 0, 0}}, {{1, 0, 0, 0, 0}}, Field()};

// RFC 8032, 5.1.4: complete, so it doubles, too.
Point add(const Point& p, const Point& q, const Field& twice_d) {
  const Field a = (p.y - p.x) * (q.y - q.x);
  const Field b = (p.y + p.x) * (q.y + q.x);
  const Field c = p.t * twice_d * q.t;
  const Field d = (p.z + p.z) * q.z;
  const Field e = b - a, f = d - c, g = d + c, h = b + a;
  return {e * f, g * h, f * g, e * h};
}

std::array<uint8_t, 32> encode(const Point& p) {
  const Field scale = inverse(p.z);
  std::array<uint8_t, 32> bytes = encode(p.y * scale);
  if (is_odd(p.x * scale)) bytes[31] = static_cast<uint8_t>(bytes[31] | 0x80);
  return bytes;
}

// RFC 8032, 5.1.3: y and the sign of x.
bool decode(const uint8_t bytes[32], const Field& d, Point* p) {
  if (!decode(bytes, &p->y)) return false;
  const Field yy = p->y * p->y;
  const Field u = yy - small(1), v = d * yy + small(1);
  const Field v3 = v * v * v;
  Field x = u * v3 * power(u * v3 * v3 * v, 252, 3);  // u v^3 (u v^7)^((p - 5) / 8)
  const Field check = v * x * x;
  if (!(check == u)) {
    if (!(check == small(0) - u)) return false;
    x = x * power(small(2), 253, 5);  // the square root of -1: 2^((p - 1) / 4)
  }
  const bool sign = (bytes[31] & 0x80) != 0;
  if (is_zero(x) && sign) return false;
  p->x = is_odd(x) == sign ? x : small(0) - x;
  p->z = small(1);
  p->t = p->x * p->y;
  return true;
}

// A number below 2^256, little-endian words.
struct Scalar {
  uint64_t word[4] = {};
};

// The order of the base point: 2^252 + 27742317777372353535851937790883648493.
constexpr Scalar kOrder = {{0x5812631a5cf5d3ed, 0x14def9dea2f79cd6, 0, 0x1000000000000000}};

bool less(const Scalar& a, const Scalar& b) {
  for (int i = 3; i >= 0; --i) {
    if (a.word[i] != b.word[i]) return a.word[i] < b.word[i];
  }
  return false;
}

Scalar scalar_from(const uint8_t bytes[32]) {
  Scalar s;
  for (int i = 0; i < 32; ++i) s.word[i / 8] |= uint64_t{bytes[i]} << (8 * (i % 8));
  return s;
}

// A 512-bit number modulo the order, bit by bit from the top. The remainder stays below 2^253, so doubling it fits.
Scalar reduced(const std::array<uint8_t, 64>& bytes) {
  Scalar r;
  for (int bit = 511; bit >= 0; --bit) {
    for (int i = 3; i > 0; --i) r.word[i] = r.word[i] << 1 | r.word[i - 1] >> 63;
    r.word[0] = r.word[0] << 1 | (bytes[static_cast<size_t>(bit / 8)] >> (bit % 8) & 1u);
    if (less(r, kOrder)) continue;
    uint64_t borrow = 0;
    for (int i = 0; i < 4; ++i) {
      const Wide difference = Wide{r.word[i]} - kOrder.word[i] - borrow;
      r.word[i] = static_cast<uint64_t>(difference);
      borrow = static_cast<uint64_t>(difference >> 64) & 1;
    }
  }
  return r;
}

bool bit_of(const Scalar& s, int bit) { return (s.word[bit / 64] >> (bit % 64) & 1) != 0; }

}  // namespace

bool ed25519_verify(const uint8_t signature[64], const uint8_t public_key[32], const void* message, size_t nbytes) {
  uint8_t base_bytes[32];  // y = 4/5, x even
  std::memset(base_bytes, 0x66, sizeof base_bytes);
  base_bytes[0] = 0x58;
  const Field d = curve_d();
  Point base, key;
  if (!decode(base_bytes, d, &base) || !decode(public_key, d, &key)) return false;
  const Scalar s = scalar_from(signature + 32);
  if (!less(s, kOrder)) return false;
  Sha512 hash;
  hash.update(signature, 32);
  hash.update(public_key, 32);
  hash.update(message, nbytes);
  const Scalar k = reduced(hash.finish());

  // R = s B - k A: both products at once, a doubling for each bit.
  const Field twice_d = d + d;
  const Point minus_key = {small(0) - key.x, key.y, key.z, small(0) - key.t};
  const Point both = add(base, minus_key, twice_d);
  Point r = kNeutral;
  for (int bit = 255; bit >= 0; --bit) {
    r = add(r, r, twice_d);
    if (bit_of(s, bit) && bit_of(k, bit))
      r = add(r, both, twice_d);
    else if (bit_of(s, bit))
      r = add(r, base, twice_d);
    else if (bit_of(k, bit))
      r = add(r, minus_key, twice_d);
  }
  return std::memcmp(encode(r).data(), signature, 32) == 0;
}

}  // namespace hardtack::rt
