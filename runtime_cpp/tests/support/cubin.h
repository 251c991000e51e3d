// CUDA code as far as readers look at it: an ELF file with one function and its parameters, and bundles with such code.
// Nothing in it can run.
#pragma once

#include <string>
#include <vector>

#include "support/samples.h"

namespace hardtack::testing {

struct CubinParam {
  int nbytes = 8;
  bool pointer = true;
};

std::string cubin(const std::string& function, const std::vector<CubinParam>& params, int arch = 90);
/// "kernels/<32 hex digits>.cubin".
std::string kernel_member(const std::string& code);

/// The record of a GPU kernel, field by field.
struct GpuText {
  std::string code = cubin("add_f32", {{8, true}, {8, true}, {8, true}, {4, false}, {8, true}, {4, false}, {8, true}});
  std::string function = "add_f32";
  std::string args = R"([["buffer",0],["buffer",1],["buffer",2],["int",0,"i32"],["status"],["site"],["scratch"]])";
  std::string maps = "[]";
  int threads = 128, shared = 0, cluster = 1, scratch = 0, scratch_align = 1;
  bool dependent = false;

  std::string json() const;
};

/// z = (x + y) + x for f32 [s0, 3] as two launches of `gpu`, on cuda:sm_90, with a grid of s0 programs; x + y lies in the
/// arena. `w` is a constant that no kernel reads.
Sample cuda_add_sample(const GpuText& gpu = {});
/// flag ? 7 : 9, as i32 of shape [4], through a fill in each branch.
Sample cuda_branch_sample();
/// n = count, a state of rank 0 that starts from the constant "five".
Sample cuda_state_sample();

/// A bundle for cuda:sm_90 alone.
BundleText cuda_bundle_of(const std::vector<Sample>& samples, const GpuText& gpu = {});

/// The null driver: its settings, and what it has seen since the last time.
void null_set(const std::string& name, const std::string& value);
/// "log", "problems", "leaks"; "calls": how many there were of the function that is to fail, since a setting changed.
std::string null_take(const std::string& what);

/// A test's stay with the null driver: settings are back at their defaults at the end, and nothing is left behind.
class NullDriver {
 public:
  NullDriver();
  ~NullDriver();
  ht_load_options options() const;
};

}  // namespace hardtack::testing
