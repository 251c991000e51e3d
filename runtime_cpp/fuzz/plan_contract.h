// The contract of a plan that was proved, asked with tensors as callers give them.
#pragma once

#include <random>

#include "binding.h"
#include "contract.h"

namespace hardtack::fuzz {

/// Ends the process unless the contract takes tensors of just the bound sizes, reads these symbols from them, and takes
/// what was changed of one only where it still has the bound shape and reaches no further than the bound bytes.
/// `pointers`: memory of the inputs, then of the outputs; values of symbols are written into it.
void check_contract(const rt::Manifest& manifest, const rt::Program& program, const rt::Binding& binding,
                    const std::vector<int64_t>& syms, const std::vector<void*>& pointers, const rt::Device& device,
                    std::mt19937_64& random);

}  // namespace hardtack::fuzz
