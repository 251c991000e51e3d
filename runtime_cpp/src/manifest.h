// manifest.json (docs/package.md) as structs. Texts live in `texts` and end with a NUL.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "json_reader.h"
#include "status.h"

namespace hardtack::rt {

constexpr int64_t kNoUpperBound = INT64_MAX;
constexpr int64_t kReadsFormat = 4;    // with it came plans that read sizes during a run
constexpr int64_t kWrittenFormat = 5;  // with it came entries that say which inputs they write to

/// A size or stride: a number, or an expression over the entry's symbols as text.
struct ManifestDim {
  bool fixed = true;
  int64_t value = 0;
  const char* text = "";
};

struct ManifestTensor {
  const char* name = "";
  DType dtype = DType::u8;
  std::vector<ManifestDim> shape;
  std::vector<ManifestDim> strides;
  bool written = false;  // an input: runs write to the caller's memory
};

struct ManifestSym {
  const char* name = "";
  int64_t lo = 0;
  int64_t hi = kNoUpperBound;
};

struct ManifestPlan {
  const char* target = "";
  const char* member = "";
};

struct ManifestEntry {
  const char* name = "";
  std::vector<ManifestSym> syms;
  std::vector<ManifestTensor> inputs;
  std::vector<ManifestTensor> outputs;
  std::string in_tree;
  std::string out_tree;
  std::vector<ManifestPlan> plans;  // ascending by target

  /// Null when there is none for the target.
  const ManifestPlan* find_plan(std::string_view target) const;
};

/// Elements of a flat array: the one at `index` lies at offset + index . strides.
struct ManifestView {
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;
};

/// How a part of a constant is made of a parameter. The runtime only checks it: tools that replace weights follow it.
struct ManifestRecipe {
  bool packed = false;
  bool joined = false;  // it is what `into` says of the constant; else all of it
  const char* source = "";
  std::vector<ManifestView> views;
  ManifestView into;
};

/// A tensor of the module that tools can replace.
struct ManifestParameter {
  const char* name = "";
  DType dtype = DType::u8;
  int64_t nbytes = 0;
};

/// A constant (file, tensor) or a state (init).
struct ManifestArray {
  const char* name = "";
  DType dtype = DType::u8;
  std::vector<int64_t> shape;
  int64_t nbytes = 0;
  const char* file = nullptr;
  const char* tensor = nullptr;
  std::vector<ManifestRecipe> recipe;  // empty: it cannot be replaced
  const char* init = nullptr;          // states: a constant's name; null: zeros
};

struct ManifestTarget {
  const char* name = "";
  const char* device = "";
  const char* library = nullptr;
  std::vector<const char*> requirements;
};

struct ManifestMember {
  const char* name = "";
  uint64_t nbytes = 0;
  const char* sha256 = "";
};

/// An op with a kernel of a user's: a function of the bundle's own code, or one that the host program registers.
struct ManifestUserKernel {
  const char* op = "";
  const char* function = "";
  bool host = false;
};

struct NamedText {
  const char* name = "";
  const char* text = "";
};

/// `model` null: an older one, which names neither model nor version.
struct ManifestSignature {
  bool present = false;
  const char* model = nullptr;
  int64_t version = 0;
  uint8_t public_key[32] = {};
  uint8_t value[64] = {};
};

/// Ordered, not hashed: names come from files, and hashes can be made to collide.
using NameIndex = std::map<std::string_view, uint32_t>;

struct Manifest {
  std::shared_ptr<TextPool> texts;
  int64_t format = 0;
  std::vector<ManifestArray> constants;  // ascending by name
  std::vector<ManifestEntry> entries;
  bool has_external = false;
  ManifestMember external;  // the weights file outside of the bundle
  std::vector<ManifestMember> members;
  std::vector<NamedText> numerics;
  std::vector<ManifestParameter> parameters;  // ascending by name
  std::vector<NamedText> producer;
  ManifestSignature signature;
  std::vector<ManifestArray> states;
  std::vector<ManifestTarget> targets;
  std::vector<ManifestUserKernel> user_kernels;  // ascending by op; from format 3 on

  NameIndex constant_index, state_index, member_index, target_index;

  /// Index by name, or -1.
  int find_constant(std::string_view name) const;
  int find_state(std::string_view name) const;
  int find_target(std::string_view name) const;
  const ManifestMember* find_member(std::string_view name) const;
  /// Whether a plan may name a function of the host program.
  bool names_host_kernel(std::string_view function) const;
};

/// Parses and checks everything that the manifest alone can tell.
Status parse_manifest(std::string_view text, Manifest* manifest);

/// "sm_90" gives 90: what a CUDA target requires.
bool parse_arch(std::string_view text, int* arch);

/// "gfx942" and the like: what a HIP target requires.
bool is_amd_arch(std::string_view text);

/// Whether a signature may name a model so: 1 to 255 of A-Z a-z 0-9 . _ : / -
bool good_model_name(std::string_view name);

/// The bytes that a signature covers: the manifest with the signature's `value` null, or with `signature` null where it
/// names no model.
std::string signed_bytes(std::string_view manifest_text);

}  // namespace hardtack::rt
