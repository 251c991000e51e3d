// What a kernel library needs from a C library and a compiler runtime, so that it imports nothing: the memory functions
// that compilers call for copies and fills, and the conversions and divisions that some targets lack instructions for.
// All of it is hidden, and what no kernel uses is dropped at the link.
//
// Compiled with -ffreestanding, so the loops below are not turned back into calls to the functions they define.
#include <stddef.h>
#include <stdint.h>

namespace {

typedef uint64_t word __attribute__((aligned(1), may_alias));
typedef char block __attribute__((vector_size(32), aligned(1), may_alias));

constexpr size_t kBlock = sizeof(block);
constexpr size_t kWord = sizeof(word);

void copy_forward(char* to, const char* from, size_t n) {
  for (; n >= kBlock; n -= kBlock, to += kBlock, from += kBlock) {
    *reinterpret_cast<block*>(to) = *reinterpret_cast<const block*>(from);
  }
  for (; n >= kWord; n -= kWord, to += kWord, from += kWord) {
    *reinterpret_cast<word*>(to) = *reinterpret_cast<const word*>(from);
  }
  for (; n > 0; n--) *to++ = *from++;
}

void copy_backward(char* to, const char* from, size_t n) {
  for (; n >= kBlock; n -= kBlock) {
    *reinterpret_cast<block*>(to + n - kBlock) = *reinterpret_cast<const block*>(from + n - kBlock);
  }
  for (; n >= kWord; n -= kWord) {
    *reinterpret_cast<word*>(to + n - kWord) = *reinterpret_cast<const word*>(from + n - kWord);
  }
  for (; n > 0; n--) to[n - 1] = from[n - 1];
}

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, size_t n) {
  copy_forward(static_cast<char*>(to), static_cast<const char*>(from), n);
  return to;
}

void* memmove(void* to, const void* from, size_t n) {
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  // Each block is loaded whole before it is stored, so overlap is only harmful in the wrong direction.
  if (reinterpret_cast<uintptr_t>(t) <= reinterpret_cast<uintptr_t>(f)) {
    copy_forward(t, f, n);
  } else {
    copy_backward(t, f, n);
  }
  return to;
}

void* memset(void* to, int value, size_t n) {
  char* t = static_cast<char*>(to);
  const uint64_t w = 0x0101010101010101u * static_cast<unsigned char>(value);
  typedef uint64_t words __attribute__((vector_size(32), aligned(1), may_alias));
  const words b = {w, w, w, w};
  for (; n >= kBlock; n -= kBlock, t += kBlock) *reinterpret_cast<words*>(t) = b;
  for (; n >= kWord; n -= kWord, t += kWord) *reinterpret_cast<word*>(t) = w;
  for (; n > 0; n--) *t++ = static_cast<char>(value);
  return to;
}

int memcmp(const void* a, const void* b, size_t n) {
  const unsigned char* x = static_cast<const unsigned char*>(a);
  const unsigned char* y = static_cast<const unsigned char*>(b);
  for (; n > 0; n--, x++, y++) {
    if (*x != *y) return *x < *y ? -1 : 1;
  }
  return 0;
}

int bcmp(const void* a, const void* b, size_t n) { return memcmp(a, b, n); }

}  // extern "C"

// 128-bit division, by which compilers divide 64-bit products.

namespace {

typedef unsigned __int128 u128;
typedef __int128 i128;

// Schoolbook division, a bit at a time from the divisor's highest.
u128 divide(u128 n, u128 d, u128* remainder) {
  u128 quotient = 0;
  if (d != 0 && d <= n) {
    int shift = 0;
    while (shift < 127 && (d << shift) <= (n >> 1)) shift++;
    for (; shift >= 0; shift--) {
      quotient <<= 1;
      if ((d << shift) <= n) {
        n -= d << shift;
        quotient |= 1;
      }
    }
  }
  *remainder = n;
  return quotient;
}

u128 magnitude(i128 v) { return v < 0 ? -static_cast<u128>(v) : static_cast<u128>(v); }

}  // namespace

extern "C" {

u128 __udivti3(u128 n, u128 d) {
  u128 r;
  return divide(n, d, &r);
}

u128 __umodti3(u128 n, u128 d) {
  u128 r;
  divide(n, d, &r);
  return r;
}

i128 __divti3(i128 n, i128 d) {
  u128 r;
  const u128 q = divide(magnitude(n), magnitude(d), &r);
  return static_cast<i128>((n < 0) != (d < 0) ? -q : q);
}

i128 __modti3(i128 n, i128 d) {
  u128 r;
  divide(magnitude(n), magnitude(d), &r);
  return static_cast<i128>(n < 0 ? -r : r);
}

}  // extern "C"
