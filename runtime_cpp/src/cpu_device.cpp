#include <cstdlib>

#include "cpu_queue.h"
#include "host_kernels.h"
#include "native_library.h"

namespace hardtack::rt {
namespace {

class CpuDevice : public Device {
 public:
  CpuDevice(std::unique_ptr<NativeLibrary> library, WeightBytes bytes, std::vector<const uint8_t*> constants)
      : library_(std::move(library)), bytes_(std::move(bytes)), constants_(std::move(constants)) {}

  ht_device dl_device() const override {
    ht_device device{};
    device.device_type = static_cast<decltype(device.device_type)>(1);
    return device;
  }
  bool reaches(const ht_device& device) const override { return device.device_type == dl_device().device_type; }
  int64_t memory_alignment() const override { return kCpuAlignment; }

  Status add_program(const Program& program) override {
    std::vector<CpuKernel> kernels;
    for (const Kernel& kernel : program.plan.kernels) {
      CpuKernel found;
      found.fn = library_->find(kernel.name);
      if (found.fn == nullptr) {
        return error(HT_BAD_BUNDLE, "plan of \"%s\": the library for %s has no kernel %s", program.plan.entry,
                     program.plan.target, kernel.name);
      }
      if (kernel.host != nullptr) found.host = find_host_kernel(kernel.host);  // Model has seen that it is there
      kernels.push_back(found);
    }
    kernels_.push_back(std::move(kernels));
    return Status();
  }

  const void* constant(size_t constant) const override { return constants_[constant]; }

  Status open_queue(const QueueOptions& options, std::unique_ptr<Queue>* queue) const override {
    if (options.stream != nullptr || options.asynchronous) {
      return error(HT_INVALID_ARGUMENT, "ht_session_options: a session on the CPU has no stream and always waits");
    }
    *queue = std::make_unique<CpuQueue>(kernels_, options.parallel);
    return Status();
  }

  Status allocate(size_t nbytes, void** memory) const override { return allocate_cpu(nbytes, memory); }
  void release(void* memory) const override { std::free(memory); }

 private:
  std::unique_ptr<NativeLibrary> library_;
  WeightBytes bytes_;
  std::vector<const uint8_t*> constants_;  // into bytes_
  std::vector<std::vector<CpuKernel>> kernels_;
};

}  // namespace

Status make_cpu_device(const Bundle& bundle, const ManifestTarget& target, const WeightBytes& bytes,
                       std::unique_ptr<Device>* device) {
  std::string code;
  std::unique_ptr<NativeLibrary> library;
  HT_RETURN_IF_ERROR(bundle.read(target.library, &code));
  HT_RETURN_IF_ERROR(NativeLibrary::load(code, target.library, &library));
  std::vector<const uint8_t*> constants;
  for (size_t i = 0; i < bundle.manifest().constants.size(); ++i) {
    constants.push_back(bytes.at(bundle.constant_place(i)));
  }
  *device = std::make_unique<CpuDevice>(std::move(library), bytes, std::move(constants));
  return Status();
}

}  // namespace hardtack::rt
