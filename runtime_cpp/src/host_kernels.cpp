#include "host_kernels.h"

#include <map>
#include <mutex>
#include <string>

namespace hardtack::rt {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, HtHostKernel> kernels;
};

// Never destroyed: models may be loaded while the process ends.
Table& table() {
  static Table* const made = new Table();
  return *made;
}

}  // namespace

Status register_host_kernel(const char* name, uint32_t abi_version, const HtHostKernel& kernel) {
  if (abi_version < 1 || abi_version > HT_CALL_ABI_VERSION) {
    return error(HT_INVALID_ARGUMENT,
                 "ht_register_op: \"%s\" is written for version %u of hardtack/kernel.h, this version of Hardtack (%s) "
                 "calls version %u",
                 name, abi_version, ht_version(), HT_CALL_ABI_VERSION);
  }
  const std::lock_guard<std::mutex> lock(table().mutex);
  const auto [at, added] = table().kernels.emplace(name, kernel);
  if (added || (at->second.fn == kernel.fn && at->second.user_data == kernel.user_data)) return Status();
  return error(HT_INVALID_ARGUMENT, "ht_register_op: another function is registered as \"%s\"", name);
}

HtHostKernel find_host_kernel(const char* name) {
  const std::lock_guard<std::mutex> lock(table().mutex);
  const auto at = table().kernels.find(name);
  return at == table().kernels.end() ? HtHostKernel{} : at->second;
}

Status check_registered(const Manifest& manifest) {
  std::string missing;
  for (const ManifestUserKernel& kernel : manifest.user_kernels) {
    if (!kernel.host || find_host_kernel(kernel.function).fn != nullptr) continue;
    missing += (missing.empty() ? "\"" : ", \"") + std::string(kernel.function) + "\" for " + kernel.op;
  }
  if (missing.empty()) return Status();
  return error(HT_NO_TARGET,
               "ops of the bundle are computed by functions of the program, and these are not registered: %s; call "
               "ht_register_op before the bundle is loaded",
               missing.c_str());
}

}  // namespace hardtack::rt
