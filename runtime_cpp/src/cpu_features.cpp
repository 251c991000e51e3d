#include "cpu_features.h"

#include <hardtack/hardtack.h>

#include <cstdint>
#include <cstdio>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace hardtack::rt {
namespace {

struct Feature {
  const char* name;
  uint64_t bit;
};

#if defined(__x86_64__)

// Words of CPUID output, in the order that `detect` fills them.
enum Word { k1Ecx, k1Edx, k7Ebx, k7Ecx, k7Edx, k71Eax, kExtEcx, kNumWords };
// What the operating system must save for the registers to be usable.
enum State : uint8_t { kNone, kAvx, kAvx512, kAmx };

struct X86Feature {
  const char* name;
  Word word;
  uint8_t bit;
  State state;
};

// Intel SDM volume 2A, CPUID; AMD APM volume 3 appendix E for the extended leaf.
constexpr X86Feature kX86[] = {
    {"sse", k1Edx, 25, kNone},
    {"sse2", k1Edx, 26, kNone},
    {"sse3", k1Ecx, 0, kNone},
    {"pclmul", k1Ecx, 1, kNone},
    {"ssse3", k1Ecx, 9, kNone},
    {"fma", k1Ecx, 12, kAvx},
    {"cx16", k1Ecx, 13, kNone},
    {"sse4.1", k1Ecx, 19, kNone},
    {"sse4.2", k1Ecx, 20, kNone},
    {"movbe", k1Ecx, 22, kNone},
    {"popcnt", k1Ecx, 23, kNone},
    {"aes", k1Ecx, 25, kNone},
    {"avx", k1Ecx, 28, kAvx},
    {"f16c", k1Ecx, 29, kAvx},
    {"lzcnt", kExtEcx, 5, kNone},
    {"bmi", k7Ebx, 3, kNone},
    {"avx2", k7Ebx, 5, kAvx},
    {"bmi2", k7Ebx, 8, kNone},
    {"avx512f", k7Ebx, 16, kAvx512},
    {"avx512dq", k7Ebx, 17, kAvx512},
    {"avx512ifma", k7Ebx, 21, kAvx512},
    {"avx512cd", k7Ebx, 28, kAvx512},
    {"sha", k7Ebx, 29, kNone},
    {"avx512bw", k7Ebx, 30, kAvx512},
    {"avx512vl", k7Ebx, 31, kAvx512},
    {"avx512vbmi", k7Ecx, 1, kAvx512},
    {"avx512vbmi2", k7Ecx, 6, kAvx512},
    {"avx512vnni", k7Ecx, 11, kAvx512},
    {"avx512bitalg", k7Ecx, 12, kAvx512},
    {"avx512vpopcntdq", k7Ecx, 14, kAvx512},
    {"amx-bf16", k7Edx, 22, kAmx},
    {"avx512fp16", k7Edx, 23, kAvx512},
    {"amx-tile", k7Edx, 24, kAmx},
    {"amx-int8", k7Edx, 25, kAmx},
    {"avxvnni", k71Eax, 4, kAvx},
    {"avx512bf16", k71Eax, 5, kAvx512},
};

uint64_t detect() {
  uint32_t words[kNumWords] = {};
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words[k1Ecx] = ecx, words[k1Edx] = edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words[k7Ebx] = ebx, words[k7Ecx] = ecx, words[k7Edx] = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words[k71Eax] = eax;
  }
  if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) != 0) words[kExtEcx] = ecx;

  uint64_t saved = 0;
  if ((words[k1Ecx] >> 27 & 1) != 0) {  // OSXSAVE: xgetbv may be used
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved = uint64_t{high} << 32 | low;
  }
  const bool usable[] = {true, (saved & 0x6) == 0x6, (saved & 0xE6) == 0xE6, (saved & 0x60006) == 0x60006};

  uint64_t mask = 0;
  uint64_t bit = 1;
  for (const X86Feature& f : kX86) {
    if ((words[f.word] >> f.bit & 1) != 0 && usable[f.state]) mask |= bit;
    bit <<= 1;
  }
  return mask;
}

const auto& table() { return kX86; }

// Linux gives tile registers to a process that asks for them: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
// It is asked for once, and only when something needs them: signal frames are 8 KiB larger from then on.
bool tiles_permitted() {
  static const bool permitted = ::syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return permitted;
}
bool permitted(const X86Feature& f) { return f.state != kAmx || tiles_permitted(); }

#elif defined(__aarch64__)

// Linux, arch/arm64/include/uapi/asm/hwcap.h (AT_HWCAP).
constexpr uint64_t kSecond = uint64_t{1} << 32;  // AT_HWCAP2 in the upper half
constexpr Feature kArm[] = {
    {"fp", 1u << 0},   {"neon", 1u << 1},     {"aes", 1u << 3},        {"sha2", 1u << 6},
    {"crc", 1u << 7},  {"lse", 1u << 8},      {"fp16", 1u << 10},      {"rdm", 1u << 12},
    {"sve", 1u << 22}, {"dotprod", 1u << 20}, {"i8mm", kSecond << 13}, {"bf16", kSecond << 14},
};

uint64_t detect() {
  const uint64_t capabilities = (getauxval(AT_HWCAP) & 0xffffffffu) | getauxval(AT_HWCAP2) << 32;
  uint64_t mask = 0;
  uint64_t bit = 1;
  for (const Feature& f : kArm) {
    if ((capabilities & f.bit) != 0) mask |= bit;
    bit <<= 1;
  }
  return mask;
}

const auto& table() { return kArm; }
bool permitted(const Feature&) { return true; }

#else

constexpr Feature kOther[] = {{"none", 0}};
uint64_t detect() { return 0; }
const auto& table() { return kOther; }
bool permitted(const Feature&) { return true; }

#endif

uint64_t features() {
  static const uint64_t mask = detect();
  return mask;
}

}  // namespace

bool cpu_has(std::string_view feature) {
  uint64_t bit = 1;
  for (const auto& f : table()) {
    if (feature == f.name) return (features() & bit) != 0 && permitted(f);
    bit <<= 1;
  }
  return false;
}

bool cpu_has_sha() {
  static const bool has = cpu_has("sha") && cpu_has("sse4.1");
  return has;
}

const std::string& cpu_feature_list() {
  static const std::string list = [] {
    std::string text;
    for (const auto& f : table()) {
      if (cpu_has(f.name)) text += (text.empty() ? "" : " ") + std::string(f.name);
    }
    return text;
  }();
  return list;
}

int native_elf_machine() {
#if defined(__x86_64__)
  return 62;
#elif defined(__aarch64__)
  return 183;
#else
  return 0;
#endif
}

}  // namespace hardtack::rt

extern "C" const char* ht_cpu_features(void) { return hardtack::rt::cpu_feature_list().c_str(); }
