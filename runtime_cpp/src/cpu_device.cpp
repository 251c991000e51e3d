#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "checked.h"
#include "device.h"
#include "native_library.h"

namespace hardtack::rt {
namespace {

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

  int32_t run(uint32_t i) override { return calls_[i].fn(&calls_[i].args); }

 private:
  struct Call {
    HtKernelFn fn;
    HtKernelArgs args;
    int64_t shared_nbytes;
  };
  std::vector<Call> calls_;
  int64_t workspace_nbytes_ = 0;
};

// Applies `leaf(to, from)` to each element of two tensors of one layout.
template <typename Leaf>
void for_each_element(const Layout& layout, char* to, const char* from, uint32_t dim, const Leaf& leaf) {
  if (dim == layout.ndim) return leaf(to, from);
  const int64_t step = layout.strides[dim] * layout.itemsize;
  for (int64_t i = 0; i < layout.shape[dim]; ++i) {
    for_each_element(layout, to + i * step, from + i * step, dim + 1, leaf);
  }
}

class CpuDevice : public Device {
 public:
  CpuDevice(std::unique_ptr<NativeLibrary> library, WeightBytes bytes, std::vector<const uint8_t*> constants)
      : library_(std::move(library)), bytes_(std::move(bytes)), constants_(std::move(constants)) {}

  ht_device dl_device() const override {
    ht_device device{};
    device.device_type = static_cast<decltype(device.device_type)>(1);
    return device;
  }

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

  void* allocate(size_t nbytes, size_t alignment) const override {
    if (nbytes >= kHugePage) alignment = kHugePage;
    const size_t rounded = (nbytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    // Fewer page faults on the first run and fewer TLB misses on all; a kernel without huge pages ignores it.
    if (memory != nullptr && nbytes >= kHugePage) ::madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
  }
  void release(void* memory, size_t) const override { std::free(memory); }

  void read(void* host, const void* device, int64_t nbytes) const override {
    if (nbytes > 0) std::memcpy(host, device, static_cast<size_t>(nbytes));
  }
  void write(void* device, const void* host, int64_t nbytes) const override {
    if (nbytes > 0) std::memcpy(device, host, static_cast<size_t>(nbytes));
  }
  void zero(void* device, int64_t nbytes) const override {
    if (nbytes > 0) std::memset(device, 0, static_cast<size_t>(nbytes));
  }

  void copy(void* to, const void* from, const Layout& layout) const override {
    if (layout.nbytes == 0) return;
    if (layout.dense) {
      std::memcpy(to, from, static_cast<size_t>(layout.nbytes));
      return;
    }
    const size_t itemsize = static_cast<size_t>(layout.itemsize);
    for_each_element(layout, static_cast<char*>(to), static_cast<const char*>(from), 0,
                     [itemsize](char* out, const char* in) { std::memcpy(out, in, itemsize); });
  }

  void fill(void* to, int64_t bits, const Layout& layout) const override {
    if (layout.nbytes == 0) return;
    char pattern[8];
    for (int i = 0; i < 8; ++i) pattern[i] = static_cast<char>(static_cast<uint64_t>(bits) >> (8 * i) & 0xFF);
    const size_t itemsize = static_cast<size_t>(layout.itemsize);
    char* out = static_cast<char*>(to);
    if (!layout.dense) {
      return for_each_element(layout, out, out, 0, [&](char* at, const char*) { std::memcpy(at, pattern, itemsize); });
    }
    // Doubles what is filled already: memcpy of growing blocks.
    const size_t nbytes = static_cast<size_t>(layout.nbytes);
    size_t done = itemsize;
    std::memcpy(out, pattern, itemsize);
    while (done < nbytes) {
      const size_t step = done < nbytes - done ? done : nbytes - done;
      std::memcpy(out + done, out, step);
      done += step;
    }
  }

  std::unique_ptr<Launches> prepare(size_t program, const std::vector<LaunchSite>& sites,
                                    const HtParallel* parallel) const override {
    return std::make_unique<CpuLaunches>(kernels_[program], sites, parallel);
  }

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
    const ConstantPlace& place = bundle.constant_place(i);
    constants.push_back((place.external ? bytes.external : bytes.bundle)->data() + place.offset);
  }
  *device = std::make_unique<CpuDevice>(std::move(library), bytes, std::move(constants));
  return Status();
}

}  // namespace hardtack::rt
