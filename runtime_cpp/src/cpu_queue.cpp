#include "cpu_queue.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

void* allocate_aligned(size_t nbytes) {
  const size_t alignment = nbytes >= kHugePage ? kHugePage : static_cast<size_t>(kCpuAlignment);
  const size_t rounded = (nbytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  // Fewer page faults on the first run and fewer TLB misses on all; a kernel without huge pages ignores it.
  if (memory != nullptr && nbytes >= kHugePage) ::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

Status move(void* to, const void* from, int64_t nbytes) {
  if (nbytes > 0) std::memcpy(to, from, static_cast<size_t>(nbytes));
  return Status();
}

}  // namespace

Status allocate_cpu(size_t nbytes, void** memory) {
  *memory = allocate_aligned(nbytes);
  return *memory != nullptr ? Status() : error(HT_OUT_OF_MEMORY, "cannot allocate %zu bytes", nbytes);
}

CpuLaunches::CpuLaunches(const std::vector<CpuKernel>& kernels, const std::vector<LaunchSite>& sites,
                         const HtParallel* parallel) {
  calls_.reserve(sites.size());
  for (const LaunchSite& site : sites) {
    const int64_t shared = round_up(site.shared_nbytes, kCpuAlignment);
    const int64_t stride = round_up(site.per_worker_nbytes, kCpuAlignment);
    Call call = {};
    const CpuKernel& kernel = kernels[site.kernel];
    call.fn = kernel.fn;
    call.args.host = kernel.host.fn == nullptr ? nullptr : &kernel.host;
    call.args.buffers = site.buffers;
    call.args.ints = site.ints;
    call.args.parallel = parallel;
    call.args.worker_stride = stride;
    call.args.message = message_;
    call.args.message_nbytes = sizeof message_;
    call.shared_nbytes = shared;
    calls_.push_back(call);
    // Each term is below 2^48 and there are at most 1024 workers: no overflow.
    const int64_t nbytes = shared + stride * parallel->nworkers;
    if (nbytes > workspace_nbytes_) workspace_nbytes_ = nbytes;
  }
}

void CpuLaunches::set_workspace(void* workspace) {
  char* base = static_cast<char*>(workspace);
  for (Call& call : calls_) {
    call.args.shared_workspace = call.shared_nbytes > 0 ? base : nullptr;
    call.args.worker_workspace = call.args.worker_stride > 0 ? base + call.shared_nbytes : nullptr;
  }
}

Status CpuLaunches::run(uint32_t i, int32_t* code) {
  *code = calls_[i].fn(&calls_[i].args);
  if (*code != HT_KERNEL_FAILED) return Status();
  message_[sizeof message_ - 1] = '\0';
  return error(HT_KERNEL, "%s", message_);
}

Status CpuQueue::allocate(size_t nbytes, void** memory) { return allocate_cpu(nbytes, memory); }
void CpuQueue::release(void* memory) { std::free(memory); }
Status CpuQueue::allocate_host(size_t nbytes, void** memory) { return allocate_cpu(nbytes, memory); }
void CpuQueue::release_host(void* memory) { std::free(memory); }

Status CpuQueue::read(void* host, const void* device, int64_t nbytes) { return move(host, device, nbytes); }
Status CpuQueue::write(void* device, const void* host, int64_t nbytes) { return move(device, host, nbytes); }
Status CpuQueue::fetch(void* host, const void* device, int64_t nbytes) { return move(host, device, nbytes); }
Status CpuQueue::send(void* device, const void* host, int64_t nbytes) { return move(device, host, nbytes); }
Status CpuQueue::copy(void* to, const void* from, int64_t nbytes) { return move(to, from, nbytes); }

Status CpuQueue::zero(void* device, int64_t nbytes) {
  if (nbytes > 0) std::memset(device, 0, static_cast<size_t>(nbytes));
  return Status();
}

Status CpuQueue::fill(void* to, int64_t bits, int64_t itemsize, int64_t nbytes) {
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

Status CpuQueue::prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) {
  *launches = std::make_unique<CpuLaunches>(kernels_[program], sites, &parallel_);
  return Status();
}

Status CpuQueue::set_stream(void*) { return error(HT_INVALID_ARGUMENT, "a session on the CPU has no stream"); }

}  // namespace hardtack::rt
