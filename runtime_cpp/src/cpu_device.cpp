#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "checked.h"
#include "device.h"
#include "native_library.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kMemoryAlignment = 64;
constexpr int64_t kWorkspaceAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

class CpuLaunches : public Launches {
 public:
  CpuLaunches(const std::vector<HtKernelFn>& kernels, const std::vector<LaunchSite>& sites,
              const HtParallel* parallel) {
    calls_.reserve(sites.size());
    for (const LaunchSite& site : sites) {
      const int64_t shared = round_up(site.shared_nbytes, kWorkspaceAlignment);
      const int64_t stride = round_up(site.per_worker_nbytes, kWorkspaceAlignment);
      Call call = {};
      call.fn = kernels[site.kernel];
      call.args.buffers = site.buffers;
      call.args.ints = site.ints;
      call.args.parallel = parallel;
      call.args.worker_stride = stride;
      call.shared_nbytes = shared;
      calls_.push_back(call);
      // Each term is below 2^48 and there are at most 1024 workers: no overflow.
      const int64_t nbytes = shared + stride * parallel->nworkers;
      if (nbytes > workspace_nbytes_) workspace_nbytes_ = nbytes;
    }
  }

  int64_t workspace_nbytes() const override { return workspace_nbytes_; }

  void set_workspace(void* workspace) override {
    char* base = static_cast<char*>(workspace);
    for (Call& call : calls_) {
      call.args.shared_workspace = call.shared_nbytes > 0 ? base : nullptr;
      call.args.worker_workspace = call.args.worker_stride > 0 ? base + call.shared_nbytes : nullptr;
    }
  }

  Status run(uint32_t i, int32_t* code) override {
    *code = calls_[i].fn(&calls_[i].args);
    return Status();
  }

 private:
  struct Call {
    HtKernelFn fn;
    HtKernelArgs args;
    int64_t shared_nbytes;
  };
  std::vector<Call> calls_;
  int64_t workspace_nbytes_ = 0;
};

void* allocate_aligned(size_t nbytes) {
  const size_t alignment = nbytes >= kHugePage ? kHugePage : static_cast<size_t>(kMemoryAlignment);
  const size_t rounded = (nbytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  // Fewer page faults on the first run and fewer TLB misses on all; a kernel without huge pages ignores it.
  if (memory != nullptr && nbytes >= kHugePage) ::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

Status allocate_cpu(size_t nbytes, void** memory) {
  *memory = allocate_aligned(nbytes);
  return *memory != nullptr ? Status() : error(HT_OUT_OF_MEMORY, "cannot allocate %zu bytes", nbytes);
}

// Everything has happened when a function returns.
class CpuQueue : public Queue {
 public:
  CpuQueue(const std::vector<std::vector<HtKernelFn>>& kernels, const HtParallel& parallel)
      : kernels_(kernels), parallel_(parallel) {}

  Status allocate(size_t nbytes, void** memory) override { return allocate_cpu(nbytes, memory); }
  void release(void* memory) override { std::free(memory); }
  Status allocate_host(size_t nbytes, void** memory) override { return allocate_cpu(nbytes, memory); }
  void release_host(void* memory) override { std::free(memory); }

  Status read(void* host, const void* device, int64_t nbytes) override { return move(host, device, nbytes); }
  Status write(void* device, const void* host, int64_t nbytes) override { return move(device, host, nbytes); }
  Status fetch(void* host, const void* device, int64_t nbytes) override { return move(host, device, nbytes); }
  Status send(void* device, const void* host, int64_t nbytes) override { return move(device, host, nbytes); }
  Status zero(void* device, int64_t nbytes) override {
    if (nbytes > 0) std::memset(device, 0, static_cast<size_t>(nbytes));
    return Status();
  }

  Status copy(void* to, const void* from, int64_t nbytes) override { return move(to, from, nbytes); }

  Status fill(void* to, int64_t bits, int64_t itemsize, int64_t nbytes) override {
    if (nbytes == 0) return Status();
    char pattern[8];
    for (int i = 0; i < 8; ++i) pattern[i] = static_cast<char>(static_cast<uint64_t>(bits) >> (8 * i) & 0xFF);
    char* out = static_cast<char*>(to);
    // Doubles what is filled already: memcpy of growing blocks.
    const size_t size = static_cast<size_t>(nbytes);
    size_t done = static_cast<size_t>(itemsize);
    std::memcpy(out, pattern, done);
    while (done < size) {
      const size_t step = done < size - done ? done : size - done;
      std::memcpy(out + done, out, step);
      done += step;
    }
    return Status();
  }

  Status prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) override {
    *launches = std::make_unique<CpuLaunches>(kernels_[program], sites, &parallel_);
    return Status();
  }

  bool follows_pointers() const override { return true; }
  Status synchronize(Fault*) override { return Status(); }
  Status poll(Fault*) override { return Status(); }
  Status set_stream(void*) override { return error(HT_INVALID_ARGUMENT, "a session on the CPU has no stream"); }

 private:
  static Status move(void* to, const void* from, int64_t nbytes) {
    if (nbytes > 0) std::memcpy(to, from, static_cast<size_t>(nbytes));
    return Status();
  }

  const std::vector<std::vector<HtKernelFn>>& kernels_;
  const HtParallel parallel_;
};

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
  int64_t memory_alignment() const override { return kMemoryAlignment; }

  Status add_program(const Program& program) override {
    std::vector<HtKernelFn> kernels;
    for (const Kernel& kernel : program.plan.kernels) {
      const HtKernelFn fn = library_->find(kernel.name);
      if (fn == nullptr) {
        return error(HT_BAD_BUNDLE, "plan of \"%s\": the library for %s has no kernel %s", program.plan.entry,
                     program.plan.target, kernel.name);
      }
      kernels.push_back(fn);
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
  std::vector<std::vector<HtKernelFn>> kernels_;
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
