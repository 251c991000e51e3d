// A loaded bundle: immutable after `load`, shared by sessions and threads.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bundle.h"
#include "device.h"
#include "program.h"

namespace hardtack::rt {

/// What hardtack.h shows of a model. Built once; pointers stay good as long as the model.
struct ModelInfo {
  ht_model_info model = {};
  std::vector<ht_entry_info> entries;
  std::vector<std::vector<ht_tensor_info>> inputs, outputs;  // by entry
  std::vector<std::vector<ht_sym_info>> syms;                // by entry
  std::vector<ht_array_info> states, constants;
  std::vector<ht_target_info> targets;
  std::vector<ht_member_info> members;

  std::deque<std::vector<ht_dim_info>> dims;
  std::deque<std::string> texts;
};

class Model {
 public:
  /// `path`: where the bundle is, null for one in memory; external weights are looked for beside it.
  static Status load(std::unique_ptr<Source> source, const char* path, const ht_load_options& options,
                     std::shared_ptr<const Model>* model);

  const Bundle& bundle() const { return bundle_; }
  const Manifest& manifest() const { return bundle_.manifest(); }
  const ManifestTarget& target() const { return manifest().targets[target_]; }
  /// One for each entry of the manifest, in its order.
  const std::vector<Program>& programs() const { return programs_; }
  /// Null when the model was loaded with inspect_only.
  const Device* device() const { return device_.get(); }
  const ModelInfo& info() const { return info_; }
  /// Index of an entry; null names the only one.
  Status find_entry(const char* name, size_t* entry) const;

 private:
  Status open(std::unique_ptr<Source> source, const char* bundle_path, const ht_load_options& options);
  Status load_weights(const char* bundle_path, const ht_load_options& options, bool hashed);
  Status load_programs();
  Status load_device(const DeviceName& name, const ht_load_options& options);

  Bundle bundle_;
  WeightBytes bytes_;  // empty with inspect_only
  size_t target_ = 0;
  bool trusted_ = false;
  std::vector<Program> programs_;
  std::unique_ptr<Device> device_;
  ModelInfo info_;
};

/// Reads and verifies the plan of `entry` for `target`.
Status load_plan(const Bundle& bundle, const ManifestEntry& entry, const char* target, Plan* plan);

/// Fills everything of ModelInfo. `bytes` is null where there are none.
void build_info(const Bundle& bundle, const ManifestTarget& target, const std::vector<Program>& programs,
                const Machine& machine, const WeightBytes* bytes, bool trusted, ModelInfo* info);

/// What ht_verify_file does.
Status verify_bundle(std::unique_ptr<Source> source, const char* path, const ht_load_options& options,
                     ht_verify_report* report);

}  // namespace hardtack::rt
