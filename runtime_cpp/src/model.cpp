#include "model.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "elf_check.h"
#include "library_check.h"
#include "plan_verify.h"
#include "trust.h"

namespace hardtack::rt {

Status load_plan(const Bundle& bundle, const ManifestEntry& entry, const char* target, Plan* plan) {
  const auto place = std::find_if(entry.plans.begin(), entry.plans.end(),
                                  [&](const ManifestPlan& p) { return std::strcmp(p.target, target) == 0; });
  if (place == entry.plans.end())
    return error(HT_BAD_BUNDLE, "entry \"%s\": no plan for target %s", entry.name, target);
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
  const OpenWeights open_weights =
      options.inspect_only != 0 ? OpenWeights() : weights_opener(options.weights_path, bundle_path);
  HT_RETURN_IF_ERROR(Bundle::open(std::move(source), open_weights, &bundle_));
  HT_RETURN_IF_ERROR(check_weights_path(manifest(), options));
  if (trust.required) {
    HT_RETURN_IF_ERROR(check_signature(manifest(), bundle_.manifest_text(), trust));
    trusted_ = true;
  }
  machine.device = device.kind;
  if (options.inspect_only == 0) HT_RETURN_IF_ERROR(read_machine(device, options.cuda_driver, &machine));
  HT_RETURN_IF_ERROR(choose_target(manifest(), machine, options.target, options.inspect_only != 0, &target_));
  HT_RETURN_IF_ERROR(load_programs());
  if (trust.required || options.verify_weights != 0) HT_RETURN_IF_ERROR(bundle_.verify_members(true));
  if (options.inspect_only == 0) HT_RETURN_IF_ERROR(load_device(device, options));
  HT_RETURN_IF_ERROR(bundle_.check_unchanged());
  bundle_.close_sources();
  build_info(bundle_, target(), programs_, machine, options.inspect_only == 0 ? &bytes_ : nullptr, trusted_, &info_);
  return Status();
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
  const bool copy = options.copy_weights != 0;
  const bool outside = bundle_.external() != nullptr;
  HT_RETURN_IF_ERROR(
      (outside ? *bundle_.external() : bundle_.source()).hold(copy, outside ? &bytes_.external : &bytes_.bundle));
  if (outside && bundle_.weights_nbytes() > manifest().external.nbytes) {
    HT_RETURN_IF_ERROR(bundle_.source().hold(copy, &bytes_.bundle));  // weights in both places
  }
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

// The code that a plan's GPU kernels name; notes it in `used`.
Status check_kernels(const Bundle& bundle, const ManifestTarget& target, const Plan& plan,
                     std::set<std::string>* used) {
  for (const GpuKernel& kernel : plan.gpu_kernels) {
    std::string code;
    HT_RETURN_IF_ERROR(bundle.read(kernel.member, &code));
    HT_RETURN_IF_ERROR(check_kernel_code(code, kernel.member, target.requirements[0], kernel.function));
    used->insert(kernel.member);
  }
  return Status();
}

Status check_no_other_code(const Bundle& bundle, const std::set<std::string>& used) {
  for (const Member& member : bundle.members()) {
    if (member.name.compare(0, 8, "kernels/") == 0 && used.count(member.name) == 0) {
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
  HT_RETURN_IF_ERROR(Bundle::open(std::move(source), weights_opener(options.weights_path, path), &bundle));
  const Manifest& manifest = bundle.manifest();
  HT_RETURN_IF_ERROR(check_weights_path(manifest, options));
  if (trust.required) {
    HT_RETURN_IF_ERROR(check_signature(manifest, bundle.manifest_text(), trust));
    report->trusted = 1;
  }
  HT_RETURN_IF_ERROR(bundle.verify_members(false));
  std::set<std::string> kernel_code;
  for (const ManifestEntry& entry : manifest.entries) {
    for (const ManifestTarget& target : manifest.targets) {
      Plan plan;
      HT_RETURN_IF_ERROR(load_plan(bundle, entry, target.name, &plan));
      ++report->num_plans;
      report->num_instructions += plan.instrs.size();
      HT_RETURN_IF_ERROR(check_kernels(bundle, target, plan, &kernel_code));
    }
  }
  HT_RETURN_IF_ERROR(check_no_other_code(bundle, kernel_code));
  for (const ManifestTarget& target : manifest.targets) {
    if (target.library == nullptr) continue;
    std::string code;
    HT_RETURN_IF_ERROR(bundle.read(target.library, &code));
    HT_RETURN_IF_ERROR(check_library(code, target.library, machine_of(target.name)));
    ++report->num_libraries;
  }
  HT_RETURN_IF_ERROR(bundle.check_unchanged());
  report->num_members = bundle.members().size();
  report->num_constants = manifest.constants.size();
  report->weights_nbytes = bundle.weights_nbytes();
  report->has_signature = manifest.signature.present ? 1 : 0;
  return Status();
}

}  // namespace hardtack::rt
