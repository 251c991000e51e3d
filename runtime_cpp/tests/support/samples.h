// The bundles that several tests run, and RAII around the C interface.
#pragma once

#include <hardtack/hardtack.hpp>
#include <string>
#include <vector>

#include "support/bundle_text.h"

namespace hardtack::testing {

/// A plan and the manifest entry that goes with it.
struct Sample {
  PlanText plan;
  EntryText entry;
};

/// z = (x + y) + x for f32 [s0, 3], s0 from 0 to 1000; x + y lies in the arena.
Sample add_sample();
/// count += 1; n = count. "count" is an i64 state of rank 0.
Sample count_sample();
/// i = 0; while i < end: i += step; n = i.
Sample while_sample(const char* entry = "loop", int64_t end = 10, int64_t step = 3);
/// flag ? 7 : 9, as i32 of shape [4], through a fill in each branch.
Sample branch_sample();
/// out[r] = sum of row r for f32 [s0, s1], in parallel, each worker with its own workspace.
Sample sum_rows_sample();
/// out[i] = table[index[i]] for the constant "table" of 4 f32 and i64 index [s0].
Sample gather_sample();

/// out = function(4), f32 [4], by the program's function of a name.
BundleText host_bundle(const std::string& function);
BundleText bundle_of(const std::vector<Sample>& samples);
/// The bundle's bytes with everything that the samples need (constants, states).
std::string add_bundle();

/// What a call said: HT_OK and "" or the error.
struct Outcome {
  ht_code code = HT_OK;
  std::string message;
};
Outcome outcome(ht_status* status);
/// Loads from memory and gives the error, or HT_OK.
Outcome load_outcome(const std::string& bytes, const ht_load_options* options = nullptr);

Model load(const std::string& bytes, const ht_load_options* options = nullptr);
Session session_of(const Model& model, int32_t num_threads = 1);

}  // namespace hardtack::testing
