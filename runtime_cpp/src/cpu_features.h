// What this machine's CPU can run, by the names of gcc's and clang's -m flags ("avx512f", "sse4.1"; "neon").
#pragma once

#include <string>
#include <string_view>

namespace hardtack::rt {

/// Whether the CPU has it and the operating system keeps its registers.
bool cpu_has(std::string_view feature);
/// The SHA-256 instructions, asked once.
bool cpu_has_sha();
/// All features of this machine, separated by spaces.
const std::string& cpu_feature_list();
/// The ELF machine number of native code for this process (62: x86-64, 183: aarch64).
int native_elf_machine();

}  // namespace hardtack::rt
