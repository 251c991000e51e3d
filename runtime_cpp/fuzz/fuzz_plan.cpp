// A manifest and a plan without hashes in the way: the input is both texts, separated by a zero byte. A plan that
// passes is bound to a few sizes, as a session would, and run.
#include <cstring>
#include <string_view>

#include "custom_mutator.h"
#include "json_mutator.h"
#include "plan_runner.h"
#include "plan_verify.h"

namespace {

using namespace hardtack::rt;

void run(const Manifest& manifest, const Program& program) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{8}, int64_t{1} << 33, INT64_MAX}) {
    std::vector<int64_t> syms;
    for (const PlanSym& sym : program.plan.syms) syms.push_back(size < sym.lo ? sym.lo : size > sym.hi ? sym.hi : size);
    hardtack::fuzz::run_program(manifest, program, syms);
    if (syms.empty()) return;
  }
}

// The manifest is changed one time in four.
std::string mutate_texts(const std::string& both, std::mt19937_64& random) {
  const size_t zero = both.find('\0');
  if (zero == std::string::npos) return both;
  const std::string manifest = both.substr(0, zero), plan = both.substr(zero + 1);
  const bool first = random() % 4 == 0;
  return (first ? hardtack::fuzz::mutate_json(manifest, random) : manifest) + '\0' +
         (first ? plan : hardtack::fuzz::mutate_json(plan, random));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t nbytes, size_t most_nbytes, unsigned seed) {
  return hardtack::fuzz::mutate_with(mutate_texts, data, nbytes, most_nbytes, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t nbytes) {
  const std::string_view all(reinterpret_cast<const char*>(data), nbytes);
  const size_t zero = all.find('\0');
  const std::string_view plan_text = zero == std::string_view::npos ? all : all.substr(zero + 1);
  Manifest manifest;
  Plan plan;
  const bool has_manifest = zero != std::string_view::npos && parse_manifest(all.substr(0, zero), &manifest).ok();
  if (!parse_plan(plan_text, "plan", &plan).ok() || !has_manifest) return 0;
  const ManifestEntry& entry = manifest.entries.front();
  if (!verify_plan(manifest, entry, manifest.targets.front().name, &plan).ok()) return 0;
  run(manifest, make_program(std::move(plan)));
  return 0;
}
