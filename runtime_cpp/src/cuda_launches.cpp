#include <algorithm>
#include <cstring>

#include "checked.h"
#include "cuda_device.h"

namespace hardtack::rt {
namespace {

constexpr uint32_t kMaxMapRank = 5;
constexpr int kRecordsDependent = 12030;

// The driver's number for the elements of a tensor map; -1 for a dtype that it has none for.
int map_type(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e8m0fnu:
    case DType::boolean: return 0;
    case DType::i16:
    case DType::u16: return 1;
    case DType::u32: return 2;
    case DType::i32: return 3;
    case DType::i64: return 5;
    case DType::f16: return 6;
    case DType::f32: return 7;
    case DType::f64: return 8;
    case DType::bf16: return 9;
  }
  return -1;
}

class CudaLaunches : public Launches {
 public:
  CudaLaunches(const CudaQueue& queue, const Plan& plan) : queue_(queue), driver_(queue.driver()), plan_(plan) {}

  Status prepare(size_t program, const std::vector<LaunchSite>& sites) {
    reserve(sites);
    status_ = queue_.device().has_faults() ? queue_.fault_word(program) : nullptr;
    for (size_t i = 0; i < sites.size(); ++i) HT_RETURN_IF_ERROR(prepare_call(program, sites[i], &calls_[i], i));
    for (const Call& call : calls_) apart_ = apart_ || call.gpu->dependent;
    for (Call& call : calls_) {
      const int64_t nbytes = round_up(call.scratch_nbytes, 256);
      call.scratch_offset = apart_ ? workspace_nbytes_ : 0;
      workspace_nbytes_ = apart_ ? workspace_nbytes_ + nbytes : std::max(workspace_nbytes_, nbytes);
      if (workspace_nbytes_ < kMaxNbytes) continue;
      return error(HT_CONTRACT, "its kernels need more than 2^48 bytes of scratch");
    }
    return Status();
  }

  int64_t workspace_nbytes() const override { return workspace_nbytes_; }

  void set_workspace(void* workspace) override {
    for (Call& call : calls_) {
      call.scratch = call.scratch_nbytes > 0 ? static_cast<char*>(workspace) + call.scratch_offset : nullptr;
    }
  }

  Status pointers_changed() override {
    for (MapSlot& map : maps_) {
      if (*map.buffer != map.encoded) HT_RETURN_IF_ERROR(encode(&map));
    }
    return Status();
  }

  Status run(uint32_t i, int32_t*) override {
    Call& call = calls_[i];
    if (call.config.grid[0] == 0) return Status();  // no programs
    call.config.stream = queue_.stream();
    return driver_.check(driver_.launch(&call.config, call.function, call.params, nullptr), "launching a kernel");
  }

 private:
  struct Call {
    cuda::LaunchConfig config = {};
    cuda::LaunchAttribute attributes[3] = {};
    cuda::Function function = nullptr;
    void** params = nullptr;
    const GpuKernel* gpu = nullptr;
    void* scratch = nullptr;
    int64_t scratch_nbytes = 0, scratch_offset = 0;
    int32_t site = 0;
  };
  struct MapSlot {
    void* const* buffer = nullptr;
    const void* encoded = nullptr;  // the pointer that it was made for
    const TensorMap* fixed = nullptr;
    const MapSite* site = nullptr;
    const char* kernel = "";
    bool empty = false;
    cuda::TensorMap map = {};
  };

  // Everything that parameters point to stays where it is from here on.
  void reserve(const std::vector<LaunchSite>& sites) {
    size_t num_args = 0, num_maps = 0;
    for (const LaunchSite& site : sites) {
      const GpuKernel& gpu = plan_.gpu_kernels[plan_.kernels[site.kernel].gpu];
      num_args += gpu.num_args;
      num_maps += gpu.num_maps;
    }
    calls_.resize(sites.size());
    params_.reserve(num_args);
    numbers_.reserve(num_args);
    maps_.reserve(num_maps);
  }

  Status prepare_call(size_t program, const LaunchSite& site, Call* call, size_t index) {
    const Kernel& kernel = plan_.kernels[site.kernel];
    const GpuKernel& gpu = plan_.gpu_kernels[kernel.gpu];
    call->gpu = &gpu;
    call->site = static_cast<int32_t>(index) + 1;
    HT_RETURN_IF_ERROR(queue_.device().function(program, site.kernel, &call->function));
    HT_RETURN_IF_ERROR(set_grid(kernel, gpu, site, call));
    set_attributes(gpu, call);
    const size_t first_map = maps_.size();
    for (uint32_t m = 0; m < gpu.num_maps; ++m) add_map(kernel, gpu, site, m);
    call->params = params_.data() + params_.size();
    for (uint32_t n = 0; n < gpu.num_args; ++n) {
      const GpuArg& arg = plan_.gpu_args[gpu.first_arg + n];
      void* at = nullptr;
      HT_RETURN_IF_ERROR(param(kernel, arg, site, call, first_map, &at));
      params_.push_back(at);
    }
    return Status();
  }

  // The verifier has proved the limits of each extent; here the product is checked.
  Status set_grid(const Kernel& kernel, const GpuKernel& gpu, const LaunchSite& site, Call* call) {
    const bool empty = !site.ready || site.grid[0] == 0 || site.grid[1] == 0 || site.grid[2] == 0;
    int64_t ctas = gpu.cluster, nbytes = 0;
    bool fits = true;
    for (const int64_t extent : site.grid) fits = fits && checked_mul(ctas, extent, &ctas);
    fits = fits && checked_mul(ctas, int64_t{gpu.scratch_nbytes}, &nbytes) && nbytes < kMaxNbytes;
    if (!fits) {
      return error(HT_CONTRACT, "kernel %s: a grid of %lld x %lld x %lld programs with %u bytes of scratch each",
                   kernel.name, static_cast<long long>(site.grid[0]), static_cast<long long>(site.grid[1]),
                   static_cast<long long>(site.grid[2]), gpu.scratch_nbytes);
    }
    call->scratch_nbytes = empty ? 0 : nbytes;
    call->config.grid[0] = empty ? 0 : static_cast<unsigned>(site.grid[0] * gpu.cluster);
    call->config.grid[1] = static_cast<unsigned>(site.grid[1]);
    call->config.grid[2] = static_cast<unsigned>(site.grid[2]);
    call->config.block[0] = gpu.threads;
    call->config.block[1] = call->config.block[2] = 1;
    call->config.shared_nbytes = gpu.shared_nbytes;
    return Status();
  }

  void set_attributes(const GpuKernel& gpu, Call* call) const {
    unsigned count = 0;
    if (gpu.cluster > 1) {
      cuda::LaunchAttribute& size = call->attributes[count++];
      size.id = cuda::kLaunchCluster;
      size.cluster[0] = gpu.cluster;
      size.cluster[1] = size.cluster[2] = 1;
      cuda::LaunchAttribute& policy = call->attributes[count++];
      policy.id = cuda::kLaunchClusterPolicy;
      policy.number = cuda::kClusterPolicySpread;
    }
    // An earlier driver cannot record it; without it the launch only starts later.
    if (gpu.dependent && driver_.version >= kRecordsDependent) {
      cuda::LaunchAttribute& dependent = call->attributes[count++];
      dependent.id = cuda::kLaunchProgrammatic;
      dependent.number = 1;
    }
    call->config.attributes = count > 0 ? call->attributes : nullptr;
    call->config.num_attributes = count;
  }

  void add_map(const Kernel& kernel, const GpuKernel& gpu, const LaunchSite& site, uint32_t m) {
    MapSlot slot;
    slot.fixed = &plan_.tensor_maps[gpu.first_map + m];
    slot.site = &site.maps[m];
    slot.buffer = &site.buffers[slot.site->buffer];
    slot.kernel = kernel.name;
    slot.empty = !site.ready;
    for (uint32_t d = 0; d < slot.fixed->rank; ++d) slot.empty = slot.empty || slot.site->shape[d] == 0;
    maps_.push_back(slot);
  }

  // Where the driver finds the parameter's bytes at each launch.
  Status param(const Kernel& kernel, const GpuArg& arg, const LaunchSite& site, Call* call, size_t first_map,
               void** at) {
    static void* const kNothing = nullptr;
    switch (arg.kind) {
      case GpuArgKind::buffer: *at = &site.buffers[arg.a]; break;
      case GpuArgKind::integer:
        if (arg.wide)
          *at = const_cast<int64_t*>(&site.ints[arg.a]);
        else
          return narrow(kernel, "int", arg.a, site.ints[arg.a], at);
        break;
      case GpuArgKind::status: *at = &status_; break;
      case GpuArgKind::site: *at = &call->site; break;
      case GpuArgKind::scratch: *at = &call->scratch; break;
      case GpuArgKind::null: *at = const_cast<void**>(&kNothing); break;
      case GpuArgKind::map: *at = &maps_[first_map + arg.a].map; break;
      case GpuArgKind::map_shape:
        return narrow(kernel, "the size of tensor map", arg.a, site.maps[arg.a].shape[arg.b], at);
      case GpuArgKind::map_stride: *at = const_cast<int64_t*>(&site.maps[arg.a].strides[arg.b]); break;
    }
    return Status();
  }

  Status narrow(const Kernel& kernel, const char* what, uint32_t index, int64_t value, void** at) {
    if (value < INT32_MIN || value > INT32_MAX) {
      return error(HT_CONTRACT, "kernel %s: %s %u is %lld, which does not fit in 32 bits", kernel.name, what, index,
                   static_cast<long long>(value));
    }
    numbers_.push_back(static_cast<int32_t>(value));
    *at = &numbers_.back();
    return Status();
  }

  // The driver wants the innermost dimension first.
  Status encode(MapSlot* slot) {
    const uint32_t rank = slot->fixed->rank;
    uint64_t sizes[kMaxMapRank] = {}, strides[kMaxMapRank] = {};
    unsigned block[kMaxMapRank] = {}, steps[kMaxMapRank] = {};
    const uint64_t unit = static_cast<uint64_t>(itemsize(slot->fixed->dtype));
    if (slot->empty) return Status();  // its launch has no programs
    if (driver_.encode_map == nullptr) {
      return error(HT_NO_TARGET, "kernel %s takes a tensor map; this CUDA driver has no cuTensorMapEncodeTiled",
                   slot->kernel);
    }
    for (uint32_t d = 0; d < rank; ++d) {
      const uint32_t from = rank - 1 - d;
      sizes[d] = static_cast<uint64_t>(slot->site->shape[from]);
      if (d > 0) strides[d - 1] = static_cast<uint64_t>(slot->site->strides[from]) * unit;
      block[d] = plan_.blocks[slot->fixed->first_block + from];
      steps[d] = 1;
    }
    char* base = static_cast<char*>(*slot->buffer) + static_cast<uint64_t>(slot->site->offset) * unit;
    constexpr int kPromotion128 = 2;
    const cuda::Result result =
        driver_.encode_map(&slot->map, map_type(slot->fixed->dtype), rank, base, sizes, strides, block, steps, 0,
                           static_cast<int>(slot->fixed->swizzle), kPromotion128, 0);
    slot->encoded = *slot->buffer;
    return in_context(driver_.check(result, "making a tensor map"), "kernel " + std::string(slot->kernel));
  }

  const CudaQueue& queue_;
  const cuda::Driver& driver_;
  const Plan& plan_;
  std::vector<Call> calls_;
  std::vector<void*> params_;
  std::vector<int32_t> numbers_;
  std::vector<MapSlot> maps_;
  void* status_ = nullptr;
  bool apart_ = false;  // dependent launches overlap: none may share scratch with the one before it
  int64_t workspace_nbytes_ = 0;
};

}  // namespace

Status prepare_cuda_launches(const CudaQueue& queue, size_t program, const std::vector<LaunchSite>& sites,
                             std::unique_ptr<Launches>* launches) {
  auto prepared = std::make_unique<CudaLaunches>(queue, queue.device().program(program).plan);
  HT_RETURN_IF_ERROR(prepared->prepare(program, sites));
  *launches = std::move(prepared);
  return Status();
}

}  // namespace hardtack::rt
