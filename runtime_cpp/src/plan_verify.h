// The proof that a plan is sound: docs/plan.md, "What is proved at load". After it, the interpreter asserts nothing.
//
//   plan_verify.cpp  indices, symbols, values, agreement with the manifest
//   plan_reads.cpp   symbols that are read during a run, before anything that depends on them
//   plan_flow.cpp    definitions before uses, writes, launch arguments; finds the lifetimes
//   plan_gpu.cpp     kernels and launches of a CUDA or HIP target
//   plan_access.cpp  launches are declared calls, what they access lies inside the values and has been written
//   plan_written.cpp the elements that are written so far
//   plan_places.cpp  sizes and places for given expression values: at load where constant, else for each new shape
//                    and, of what depends on a symbol that is read, for each new value of it
#pragma once

#include <vector>

#include "plan.h"

namespace hardtack::rt {

/// Proves the plan of `entry` for `target` and fills lifetimes, is_static and the values' constant and state indices.
Status verify_plan(const Manifest& manifest, const ManifestEntry& entry, const char* target, Plan* plan);

/// Bytes from a value's first element to behind its last; 0 when a size is 0. False when a size or stride is negative
/// or the sum is not below 2^48.
bool value_nbytes(const Plan& plan, const Value& value, const int64_t* exprs, int64_t* nbytes);

/// Checks sizes, places and overlaps for these expression values and gives each value's nbytes. What depends on other
/// symbols than the first `num_syms` is left out and its nbytes are -1.
Status check_places(const Plan& plan, const int64_t* exprs, size_t num_syms, std::vector<int64_t>* nbytes);

/// The same for grids and tensor maps; `nbytes` is what check_places gave.
Status check_gpu_launches(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes);

/// What launches access: inside the values, and written as a whole before it is read. The same arguments.
Status check_accesses(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes);

// Parts of verify_plan.
Status check_flow(Plan* plan);
/// Each symbol is bound by an input or read once, in order, and what an instruction uses depends on none that comes later.
/// After find_calls.
Status check_reads(const Plan& plan);
/// Finds the call that each launch is one of.
Status find_calls(Plan* plan);
/// Records of GPU kernels are there for a CUDA target only, and sound; launches fit them.
Status check_gpu_kernels(const Plan& plan, const Manifest& manifest, const char* device);

}  // namespace hardtack::rt
