#include <algorithm>
#include <cstring>

#include "checked.h"
#include "plan_verify.h"

namespace hardtack::rt {
namespace {

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxScratchAlign = 256;
constexpr uint32_t kMaxArgsNbytes = 4096;
constexpr uint32_t kMaxMapRank = 5;
constexpr uint32_t kMaxBlock = 256;
constexpr int64_t kGridLimits[3] = {0x7FFFFFFF, 65535, 65535};

// Of a kind of GPU.
struct Limits {
  const char* suffix;  // of the members with its code
  uint32_t warp_size;
  uint32_t shared_nbytes;
  uint32_t cluster;
  bool maps_and_dependent;  // whether there are tensor maps and dependent launches
  int64_t grid_threads;     // of all programs in x together
};
constexpr Limits kCuda = {".cubin", 32, 232448, 16, true, int64_t{1} << 62};
constexpr Limits kHip = {".hsaco", 64, 65536, 1, false, 0xFFFFFFFF};

// "kernels/" and 32 hexadecimal digits and the suffix.
bool is_kernel_member(std::string_view name, const Limits& limits) {
  return name.size() == 46 && name.substr(0, 8) == "kernels/" && name.substr(40) == limits.suffix &&
         name.substr(8, 32).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_function(std::string_view name) {
  static constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$0123456789";
  return !name.empty() && name.size() <= 1024 && !(name[0] >= '0' && name[0] <= '9') &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

class KernelCheck {
 public:
  KernelCheck(const Plan& plan, const Kernel& kernel, const Limits& limits)
      : plan_(plan), kernel_(kernel), g_(plan.gpu_kernels[kernel.gpu]), name_(kernel.name), limits_(limits) {}

  Status check(const Manifest& manifest) const {
    if (!is_kernel_member(g_.member, limits_) || manifest.find_member(g_.member) == nullptr) {
      return error(HT_BAD_BUNDLE, "kernel %s: no member kernels/<32 hexadecimal digits>%s of the name \"%s\"", name_,
                   limits_.suffix, g_.member);
    }
    if (!is_function(g_.function)) {
      return error(HT_BAD_BUNDLE, "kernel %s: \"%s\" names no function", name_, g_.function);
    }
    HT_RETURN_IF_ERROR(check_limits());
    for (uint32_t m = 0; m < g_.num_maps; ++m) HT_RETURN_IF_ERROR(check_map(m));
    uint32_t nbytes = 0;
    for (uint32_t n = 0; n < g_.num_args; ++n) {
      const GpuArg& arg = plan_.gpu_args[g_.first_arg + n];
      HT_RETURN_IF_ERROR(check_arg(n, arg));
      const uint32_t size = gpu_arg_nbytes(arg), align = size < 64 ? size : 64;
      nbytes = (nbytes + align - 1) / align * align + size;
      if (nbytes <= kMaxArgsNbytes) continue;
      return error(HT_BAD_BUNDLE, "kernel %s: %u bytes of parameters, the limit is %u", name_, nbytes, kMaxArgsNbytes);
    }
    return Status();
  }

 private:
  Status check_limits() const {
    if (g_.threads < limits_.warp_size || g_.threads > kMaxThreads || g_.threads % limits_.warp_size != 0) {
      return error(HT_BAD_BUNDLE, "kernel %s: %u threads, expected a multiple of %u up to %u", name_, g_.threads,
                   limits_.warp_size, kMaxThreads);
    }
    if (g_.shared_nbytes > limits_.shared_nbytes) {
      return error(HT_BAD_BUNDLE, "kernel %s: %u bytes of shared memory, the limit is %u", name_, g_.shared_nbytes,
                   limits_.shared_nbytes);
    }
    if (g_.cluster < 1 || g_.cluster > limits_.cluster) {
      return error(HT_BAD_BUNDLE, "kernel %s: clusters of %u, expected 1 to %u", name_, g_.cluster, limits_.cluster);
    }
    if (!limits_.maps_and_dependent && (g_.dependent || g_.num_maps > 0)) {
      return error(HT_BAD_BUNDLE, "kernel %s: tensor maps or a dependent launch, which only CUDA has", name_);
    }
    const uint32_t align = g_.scratch_align;
    if (align >= 1 && align <= kMaxScratchAlign && (align & (align - 1)) == 0) return Status();
    return error(HT_BAD_BUNDLE, "kernel %s: scratch aligned to %u, expected a power of two up to %u", name_, align,
                 kMaxScratchAlign);
  }

  Status check_map(uint32_t m) const {
    const TensorMap& map = plan_.tensor_maps[g_.first_map + m];
    bool good = map.rank >= 1 && map.rank <= kMaxMapRank && map.swizzle <= 3;
    for (uint32_t d = 0; good && d < map.rank; ++d) {
      const uint32_t block = plan_.blocks[map.first_block + d];
      good = block >= 1 && block <= kMaxBlock;
    }
    if (good) return Status();
    return error(HT_BAD_BUNDLE, "kernel %s: tensor map %u has %u dimensions, swizzle %u or a block beyond 1 to %u",
                 name_, m, map.rank, map.swizzle, kMaxBlock);
  }

  Status check_arg(uint32_t n, const GpuArg& arg) const {
    uint32_t count = g_.num_maps;
    const char* what = "tensor map";
    switch (arg.kind) {
      case GpuArgKind::buffer: count = kernel_.num_buffers, what = "buffer"; break;
      case GpuArgKind::integer: count = kernel_.num_ints, what = "int"; break;
      case GpuArgKind::status:
      case GpuArgKind::site:
      case GpuArgKind::scratch:
      case GpuArgKind::null: return Status();
      case GpuArgKind::map:
      case GpuArgKind::map_shape:
      case GpuArgKind::map_stride: break;
    }
    if (arg.a >= count) {
      return error(HT_BAD_BUNDLE, "kernel %s: parameter %u is %s %u, there are %u", name_, n, what, arg.a, count);
    }
    const bool has_dim = arg.kind == GpuArgKind::map_shape || arg.kind == GpuArgKind::map_stride;
    if (!has_dim || arg.b < plan_.tensor_maps[g_.first_map + arg.a].rank) return Status();
    return error(HT_BAD_BUNDLE, "kernel %s: parameter %u is dimension %u of tensor map %u, which has %u", name_, n,
                 arg.b, arg.a, plan_.tensor_maps[g_.first_map + arg.a].rank);
  }

  const Plan& plan_;
  const Kernel& kernel_;
  const GpuKernel& g_;
  const char* name_;
  const Limits& limits_;
};

// The launch against its kernel, as far as no size matters.
Status check_launch(const Plan& plan, const Instr& i) {
  const Kernel& kernel = plan.kernels[i.kernel];
  if (i.has_grid != (kernel.gpu != kNone)) {
    return error(HT_BAD_BUNDLE, "kernel %s: a launch %s a grid", kernel.name, i.has_grid ? "has" : "lacks");
  }
  if (!i.has_grid) return Status();
  const GpuKernel& g = plan.gpu_kernels[kernel.gpu];
  if (i.num_maps != g.num_maps) {
    return error(HT_BAD_BUNDLE, "kernel %s: launched with %u tensor maps, it takes %u", kernel.name, i.num_maps,
                 g.num_maps);
  }
  for (uint32_t m = 0; m < i.num_maps; ++m) {
    const MapSource& source = plan.map_sources[i.first_map + m];
    const TensorMap& fixed = plan.tensor_maps[g.first_map + m];
    if (source.buffer >= i.num_buffers || source.ndim != fixed.rank) {
      return error(HT_BAD_BUNDLE, "kernel %s: tensor map %u: no buffer %u, or %u dimensions, expected %u", kernel.name,
                   m, source.buffer, source.ndim, fixed.rank);
    }
    const Value& value = plan.values[plan.buffers(i)[source.buffer]];
    if (value.dtype == fixed.dtype) continue;
    return error(HT_BAD_BUNDLE, "kernel %s: tensor map %u: \"%s\" is %s, expected %s", kernel.name, m, value.name,
                 dtype_name(value.dtype), dtype_name(fixed.dtype));
  }
  return Status();
}

class LaunchCheck {
 public:
  LaunchCheck(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes)
      : plan_(plan), exprs_(exprs), num_syms_(num_syms), nbytes_(nbytes) {}

  Status check(const Instr& i) const {
    const Kernel& kernel = plan_.kernels[i.kernel];
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t limit = grid_limit(plan_.gpu_kernels[kernel.gpu], axis);
      Interval extent = plan_.exprs.bounds(i.grid[axis]);
      if (known(i.grid[axis])) extent.lo = extent.hi = exprs_[i.grid[axis]];
      if (extent.hi >= 0 && extent.lo <= limit && (!known(i.grid[axis]) || extent.lo >= 0)) continue;
      return error(HT_BAD_BUNDLE, "kernel %s: %lld programs in dimension %d of its grid, expected 0 to %lld",
                   kernel.name, static_cast<long long>(extent.hi < 0 ? extent.hi : extent.lo), axis,
                   static_cast<long long>(limit));
    }
    for (uint32_t m = 0; m < i.num_maps; ++m) HT_RETURN_IF_ERROR(check_map(i, m));
    return Status();
  }

 private:
  static int64_t grid_limit(const GpuKernel& g, int axis) {
    if (axis > 0) return kGridLimits[axis];
    const Limits& limits = is_kernel_member(g.member, kHip) ? kHip : kCuda;
    return std::min(kGridLimits[0], limits.grid_threads / g.threads) / g.cluster;
  }

  bool known(uint32_t e) const { return plan_.exprs.is_known(e, num_syms_); }

  Status check_map(const Instr& i, uint32_t m) const {
    const MapSource& source = plan_.map_sources[i.first_map + m];
    const uint32_t value = plan_.buffers(i)[source.buffer];
    const int64_t unit = itemsize(plan_.values[value].dtype);
    bool all_known = known(source.offset) && nbytes_[value] >= 0;
    for (uint32_t d = 0; d < 2 * source.ndim; ++d) all_known = all_known && known(plan_.map_dims[source.first_dim + d]);
    if (!all_known) return Status();
    int64_t last = exprs_[source.offset], start = 0;
    bool good = last >= 0 && checked_mul(last, unit, &start) && start % 16 == 0, empty = false;
    for (uint32_t d = 0; good && d < source.ndim; ++d) {
      const int64_t size = exprs_[plan_.map_dims[source.first_dim + d]];
      const int64_t stride = exprs_[plan_.map_dims[source.first_dim + source.ndim + d]];
      int64_t step = 0, reach = 0;
      empty = empty || size == 0;
      good = size >= 0 && size <= 0xFFFFFFFF && stride >= 1 && checked_mul(stride, unit, &step) &&
             (d + 1 == source.ndim ? stride == 1 : step % 16 == 0 && step < (int64_t{1} << 40)) &&
             checked_mul(size - 1, stride, &reach) && checked_add(last, reach, &last);
    }
    int64_t end = 0;
    good = good &&
           (empty || (checked_add(last, int64_t{1}, &last) && checked_mul(last, unit, &end) && end <= nbytes_[value]));
    if (good) return Status();
    return error(HT_BAD_BUNDLE, "kernel %s: tensor map %u leaves \"%s\" or is not aligned to 16 bytes",
                 plan_.kernels[i.kernel].name, m, plan_.values[value].name);
  }

  const Plan& plan_;
  const int64_t* exprs_;
  size_t num_syms_;
  const std::vector<int64_t>& nbytes_;
};

}  // namespace

uint32_t gpu_arg_nbytes(const GpuArg& arg) {
  switch (arg.kind) {
    case GpuArgKind::integer: return arg.wide ? 8 : 4;
    case GpuArgKind::site:
    case GpuArgKind::map_shape: return 4;
    case GpuArgKind::map: return 128;
    case GpuArgKind::buffer:
    case GpuArgKind::status:
    case GpuArgKind::scratch:
    case GpuArgKind::null:
    case GpuArgKind::map_stride: break;
  }
  return 8;
}

Status check_gpu_kernels(const Plan& plan, const Manifest& manifest, const char* device) {
  const bool on_hip = std::strcmp(device, "hip") == 0;
  const bool on_gpu = on_hip || std::strcmp(device, "cuda") == 0;
  for (const Kernel& kernel : plan.kernels) {
    if ((kernel.gpu != kNone) != on_gpu) {
      return error(HT_BAD_BUNDLE, "kernel %s: the record of a GPU kernel is %s, the target is for %s", kernel.name,
                   on_gpu ? "missing" : "there", device);
    }
    if (on_gpu) HT_RETURN_IF_ERROR(KernelCheck(plan, kernel, on_hip ? kHip : kCuda).check(manifest));
  }
  for (const Instr& i : plan.instrs) {
    if (i.op == InstrOp::launch) HT_RETURN_IF_ERROR(check_launch(plan, i));
  }
  return Status();
}

Status check_gpu_launches(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes) {
  const LaunchCheck launch(plan, exprs, num_syms, nbytes);
  for (const Instr& i : plan.instrs) {
    if (i.op == InstrOp::launch && i.has_grid) HT_RETURN_IF_ERROR(launch.check(i));
  }
  return Status();
}

}  // namespace hardtack::rt
