// Runs plans that were proved, with kernels that access just what their calls declare: what a proof let through shows.
#pragma once

#include "manifest.h"
#include "program.h"

namespace hardtack::fuzz {

/// Runs the program with these symbols, in memory of just the sizes that it asks for. Each kernel reads and writes every
/// element that its call declares. Ends the process where an access leaves its value, where what is read or given out was
/// not written or is another value's, and where an input or a constant is written; a sanitizer sees the rest. Runs of more
/// than some memory, elements or steps are cut short or left out.
void run_program(const rt::Manifest& manifest, const rt::Program& program, const std::vector<int64_t>& syms);

}  // namespace hardtack::fuzz
