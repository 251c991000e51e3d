#include "cuda_driver.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

namespace hardtack::rt::cuda {
namespace {

constexpr const char* kDefaultPath = "libcuda.so.1";
constexpr int kMinVersion = 12000;

// Errors after which the context, shared by the whole process, gives nothing but errors.
bool is_sticky(Result result) {
  return result == 214 || result == 220 || result == 700 || result == 702 || (result >= 714 && result <= 719);
}

}  // namespace

Status Driver::open(const char* path, const Driver** driver) {
  static std::mutex mutex;
  static auto* opened = new std::map<std::string, std::unique_ptr<Driver>>();  // as long as the process
  const std::string name = path == nullptr ? kDefaultPath : path;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Driver>& slot = (*opened)[name];
  if (slot == nullptr) {
    auto fresh = std::make_unique<Driver>();
    HT_RETURN_IF_ERROR(fresh->resolve(name.c_str()));
    slot = std::move(fresh);
  }
  *driver = slot.get();
  return Status();
}

Status Driver::resolve(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return error(
        HT_NO_TARGET,
        "there is no CUDA driver: %s; install NVIDIA's driver (in a container: start it with the GPU), or load "
        "with device \"cpu\"",
        why == nullptr ? path : why);
  }
  const char* missing = nullptr;
// NOLINTBEGIN(bugprone-macro-parentheses): names and parameter lists, not values
#define HT_CUDA_REQUIRED(name, symbol, parameters)                          \
  name = reinterpret_cast<Result(*) parameters>(::dlsym(library, #symbol)); \
  if (name == nullptr) missing = #symbol;
#define HT_CUDA_OPTIONAL(name, symbol, parameters) \
  name = reinterpret_cast<Result(*) parameters>(::dlsym(library, #symbol));
  // NOLINTEND(bugprone-macro-parentheses)
  HT_CUDA_FUNCTIONS(HT_CUDA_REQUIRED, HT_CUDA_OPTIONAL)
#undef HT_CUDA_REQUIRED
#undef HT_CUDA_OPTIONAL
  if (missing != nullptr) {
    return error(HT_NO_TARGET, "the CUDA driver %s has no %s: a driver for CUDA 12.0 or later is needed", path,
                 missing);
  }
  const Result result = init(0);
  if (result != kSuccess) {
    const Status why = failure(result, "starting the CUDA driver");
    return error(HT_NO_TARGET, "%s; nvidia-smi tells whether the driver sees a device", why.message());
  }
  if (driver_version(&version) != kSuccess || version < kMinVersion) {
    return error(HT_NO_TARGET, "the CUDA driver %s is for CUDA %d.%d: CUDA 12.0 or later is needed", path,
                 version / 1000, version % 1000 / 10);
  }
  return Status();
}

Status Driver::failure(Result result, const char* what) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(result, &name) != kSuccess || name == nullptr) name = "an unknown error";
  if (error_text(result, &text) != kSuccess || text == nullptr) text = "no description";
  return error(
      result == kOutOfMemory ? HT_OUT_OF_MEMORY : HT_DEVICE, "%s: %s (%d: %s)%s", what, name, result, text,
      is_sticky(result) ? "; this process has lost the device: every later CUDA call of it fails, start another" : "");
}

Status read_properties(const Driver& driver, int ordinal, Properties* properties) {
  int count = 0, major = 0, minor = 0;
  HT_RETURN_IF_ERROR(driver.check(driver.device_count(&count), "counting CUDA devices"));
  if (ordinal >= count) {
    return error(HT_NO_TARGET, "there is no device cuda:%d: the CUDA driver sees %d device%s", ordinal, count,
                 count == 1 ? "" : "s");
  }
  char name[256] = {};
  properties->ordinal = ordinal;
  HT_RETURN_IF_ERROR(driver.check(driver.device_get(&properties->id, ordinal), "finding the CUDA device"));
  const DeviceId id = properties->id;
  HT_RETURN_IF_ERROR(driver.check(driver.device_name(name, sizeof name - 1, id), "reading the device's name"));
  for (const auto& [value, attribute] : {std::pair<int*, int>{&major, kDeviceComputeCapabilityMajor},
                                         {&minor, kDeviceComputeCapabilityMinor},
                                         {&properties->max_shared_nbytes, kDeviceMaxSharedOptin}}) {
    HT_RETURN_IF_ERROR(driver.check(driver.device_attribute(value, attribute, id), "reading the device's properties"));
  }
  properties->arch = 10 * major + minor;
  properties->name = name;
  return Status();
}

}  // namespace hardtack::rt::cuda
