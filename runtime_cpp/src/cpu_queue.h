// What a session does on the CPU. A kernel is a function; everything has happened when a call returns.
#pragma once

#include <hardtack/kernel_abi.h>

#include "device.h"

namespace hardtack::rt {

constexpr int64_t kCpuAlignment = 64;  // of memory and workspaces

Status allocate_cpu(size_t nbytes, void** memory);

/// A kernel of a plan: the library's function, and the host's function that it calls, if it calls one.
struct CpuKernel {
  HtKernelFn fn = nullptr;
  HtHostKernel host = {};
};

class CpuLaunches : public Launches {
 public:
  /// `kernels`: one for each of the plan; they outlive it.
  CpuLaunches(const std::vector<CpuKernel>& kernels, const std::vector<LaunchSite>& sites, const HtParallel* parallel);
  int64_t workspace_nbytes() const override { return workspace_nbytes_; }
  void set_workspace(void* workspace) override;
  Status run(uint32_t i, int32_t* code) override;

 private:
  struct Call {
    HtKernelFn fn;
    HtKernelArgs args;
    int64_t shared_nbytes;
  };
  std::vector<Call> calls_;  // they point to message_
  int64_t workspace_nbytes_ = 0;
  char message_[512] = {};
};

class CpuQueue : public Queue {
 public:
  /// `kernels`: by program, one for each of its plan; they outlive the queue.
  CpuQueue(const std::vector<std::vector<CpuKernel>>& kernels, const HtParallel& parallel)
      : kernels_(kernels), parallel_(parallel) {}

  Status allocate(size_t nbytes, void** memory) override;
  void release(void* memory) override;
  Status allocate_host(size_t nbytes, void** memory) override;
  void release_host(void* memory) override;
  Status read(void* host, const void* device, int64_t nbytes) override;
  Status write(void* device, const void* host, int64_t nbytes) override;
  Status fetch(void* host, const void* device, int64_t nbytes) override;
  Status send(void* device, const void* host, int64_t nbytes) override;
  Status zero(void* device, int64_t nbytes) override;
  Status copy(void* to, const void* from, int64_t nbytes) override;
  Status fill(void* to, int64_t bits, int64_t itemsize, int64_t nbytes) override;
  Status prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) override;
  bool follows_pointers() const override { return true; }
  Status synchronize(Fault*) override { return Status(); }
  Status poll(Fault*) override { return Status(); }
  Status set_stream(void*) override;

 protected:
  const std::vector<std::vector<CpuKernel>>& kernels_;
  const HtParallel parallel_;
};

}  // namespace hardtack::rt
