#include "model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "elf_check.h"
#include "host_kernels.h"
#include "library_check.h"
#include "plan_verify.h"
#include "trust.h"

namespace hardtack::rt {

Status load_plan(const Bundle& bundle, const ManifestEntry& entry, const char* target, Plan* plan) {
  const ManifestPlan* place = entry.find_plan(target);
  if (place == nullptr) return error(HT_BAD_BUNDLE, "entry \"%s\": no plan for target %s", entry.name, target);
  std::string text;
  HT_RETURN_IF_ERROR(bundle.read(place->member, &text));
  HT_RETURN_IF_ERROR(parse_plan(text, place->member, plan));
  return verify_plan(bundle.manifest(), entry, target, plan);
}

namespace {

Status check_weights_path(const Manifest& manifest, const ht_load_options& options) {
  if (options.weights_path == nullptr || manifest.has_external) return Status();
  return error(HT_INVALID_ARGUMENT, "the bundle holds its weights itself; the file %s is not needed",
               options.weights_path);
}

// The ELF machine that a target's name says, 0 when it says none.
int machine_of(const char* target) {
  const char* colon = std::strchr(target, ':');
  const std::string_view name = colon == nullptr ? target : colon + 1;
  if (name.substr(0, 6) == "x86-64") return 62;
  return name.substr(0, 7) == "aarch64" ? 183 : 0;
}

}  // namespace

Status Model::load(std::unique_ptr<Source> source, const char* path, const ht_load_options& options,
                   std::shared_ptr<const Model>* model) {
  auto loaded = std::make_shared<Model>();
  HT_RETURN_IF_ERROR(loaded->open(std::move(source), path, options));
  *model = std::move(loaded);
  return Status();
}

Status Model::open(std::unique_ptr<Source> source, const char* bundle_path, const ht_load_options& options) {
  DeviceName device;
  Machine machine;
  Trust trust;
  HT_RETURN_IF_ERROR(read_trust(options, &trust));
  HT_RETURN_IF_ERROR(parse_device(options.device, &device));
  const bool hashed = trust.required || options.verify_weights != 0;
  HT_RETURN_IF_ERROR(Bundle::open(std::move(source), &bundle_));
  HT_RETURN_IF_ERROR(check_weights_path(manifest(), options));
  if (trust.required) {
    HT_RETURN_IF_ERROR(check_signature(manifest(), bundle_.manifest_text(), trust));
    trusted_ = true;
  }
  machine.device = device.kind;
  if (options.inspect_only == 0) HT_RETURN_IF_ERROR(read_machine(device, options.cuda_driver, &machine));
  HT_RETURN_IF_ERROR(choose_target(manifest(), machine, options.target, options.inspect_only != 0, &target_));
  HT_RETURN_IF_ERROR(load_weights(bundle_path, options, hashed));
  HT_RETURN_IF_ERROR(load_programs());
  if (hashed) HT_RETURN_IF_ERROR(bundle_.verify_members(true));
  if (options.inspect_only == 0) HT_RETURN_IF_ERROR(load_device(device, options));
  HT_RETURN_IF_ERROR(bundle_.check_unchanged());
  bundle_.close_sources();
  build_info(bundle_, target(), programs_, machine, options.inspect_only == 0 ? &bytes_ : nullptr, trusted_, &info_);
  return Status();
}

// What is hashed later is what is held here, and what is used. An inspected model uses none of it.
Status Model::load_weights(const char* bundle_path, const ht_load_options& options, bool hashed) {
  if (options.inspect_only != 0) {
    if (hashed) HT_RETURN_IF_ERROR(bundle_.check_weights_are_there());
    return manifest().has_external ? Status() : bundle_.read_weights();
  }
  HT_RETURN_IF_ERROR(bundle_.open_external(weights_opener(options.weights_path, bundle_path)));
  HT_RETURN_IF_ERROR(bundle_.hold(hashed, options.copy_weights != 0, &bytes_));
  return bundle_.read_weights();
}

Status Model::load_programs() {
  for (const ManifestEntry& entry : manifest().entries) {
    Plan plan;
    HT_RETURN_IF_ERROR(load_plan(bundle_, entry, target().name, &plan));
    programs_.push_back(make_program(std::move(plan)));
  }
  return Status();
}

Status Model::load_device(const DeviceName& name, const ht_load_options& options) {
  HT_RETURN_IF_ERROR(check_registered(manifest()));
  if (name.kind == "cpu")
    HT_RETURN_IF_ERROR(make_cpu_device(bundle_, target(), bytes_, &device_));
  else
    HT_RETURN_IF_ERROR(make_cuda_device(bundle_, target(), bytes_, options.cuda_driver, name.ordinal, &device_));
  for (const Program& program : programs_) HT_RETURN_IF_ERROR(device_->add_program(program));
  return device_->finish_loading();
}

Status Model::find_entry(const char* name, size_t* entry) const {
  const std::vector<ManifestEntry>& entries = manifest().entries;
  if (name == nullptr && entries.size() == 1) return *entry = 0, Status();
  for (size_t i = 0; name != nullptr && i < entries.size(); ++i) {
    if (std::strcmp(entries[i].name, name) == 0) return *entry = i, Status();
  }
  std::string known;
  for (const ManifestEntry& e : entries) known += (known.empty() ? "\"" : ", \"") + std::string(e.name) + "\"";
  if (name == nullptr) return error(HT_INVALID_ARGUMENT, "no entry named; the bundle has %s", known.c_str());
  return error(HT_INVALID_ARGUMENT, "no entry \"%s\"; the bundle has %s", name, known.c_str());
}

namespace {

// The code that plans name, with the architecture of their target -> the functions that they name in it.
using UsedCode = std::map<std::pair<std::string, std::string>, FunctionNames>;

Status check_code(const Bundle& bundle, const UsedCode& used) {
  std::set<std::string> members;
  for (const auto& [place, functions] : used) {
    const auto& [member, arch] = place;
    std::string code;
    HT_RETURN_IF_ERROR(bundle.read(member.c_str(), &code));
    HT_RETURN_IF_ERROR(check_kernel_code(code, member.c_str(), arch.c_str(), functions));
    members.insert(member);
  }
  for (const Member& member : bundle.members()) {
    if (member.name.compare(0, 8, "kernels/") == 0 && members.count(member.name) == 0) {
      return error(HT_BAD_BUNDLE, "member %s: no plan names it", member.name.c_str());
    }
  }
  return Status();
}

}  // namespace

Status verify_bundle(std::unique_ptr<Source> source, const char* path, const ht_load_options& options,
                     ht_verify_report* report) {
  Bundle bundle;
  Trust trust;
  HT_RETURN_IF_ERROR(read_trust(options, &trust));
  HT_RETURN_IF_ERROR(Bundle::open(std::move(source), &bundle));
  const Manifest& manifest = bundle.manifest();
  HT_RETURN_IF_ERROR(check_weights_path(manifest, options));
  if (trust.required) {
    HT_RETURN_IF_ERROR(check_signature(manifest, bundle.manifest_text(), trust));
    report->trusted = 1;
  }
  HT_RETURN_IF_ERROR(bundle.open_external(weights_opener(options.weights_path, path)));
  HT_RETURN_IF_ERROR(bundle.check_weights_are_there());
  HT_RETURN_IF_ERROR(bundle.read_weights());
  HT_RETURN_IF_ERROR(bundle.verify_members(false));
  UsedCode code;
  for (const ManifestEntry& entry : manifest.entries) {
    for (const ManifestTarget& target : manifest.targets) {
      Plan plan;
      HT_RETURN_IF_ERROR(load_plan(bundle, entry, target.name, &plan));
      ++report->num_plans;
      report->num_instructions += plan.instrs.size();
      for (const GpuKernel& k : plan.gpu_kernels) code[{k.member, target.requirements[0]}].insert(k.function);
    }
  }
  HT_RETURN_IF_ERROR(check_code(bundle, code));
  std::set<std::pair<std::string_view, int>> checked;  // targets may share a library
  for (const ManifestTarget& target : manifest.targets) {
    if (target.library == nullptr) continue;
    ++report->num_libraries;
    if (!checked.emplace(target.library, machine_of(target.name)).second) continue;
    std::string library;
    HT_RETURN_IF_ERROR(bundle.read(target.library, &library));
    HT_RETURN_IF_ERROR(check_library(library, target.library, machine_of(target.name)));
  }
  HT_RETURN_IF_ERROR(bundle.check_unchanged());
  report->num_members = bundle.members().size();
  report->num_constants = manifest.constants.size();
  report->weights_nbytes = bundle.weights_nbytes();
  report->has_signature = manifest.signature.present ? 1 : 0;
  return Status();
}

}  // namespace hardtack::rt
