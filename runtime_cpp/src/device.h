// The seam between the runtime and what runs kernels. Outside a device's own file a device pointer is only passed on,
// never followed: sessions, bindings and the interpreter do not know where memory lies.
#pragma once

#include <memory>

#include "bundle.h"
#include "program.h"

namespace hardtack::rt {

/// The elements of a tensor; stride and shape arrays belong to the caller.
struct Layout {
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements
  uint32_t ndim = 0;
  int64_t itemsize = 1;
  bool dense = true;  // no gaps between elements: the whole range may be written
  int64_t nbytes = 0;
};

/// What a launch gets, gathered by the binding. `buffers` and `ints` stay where they are; the pointers inside `buffers`
/// change from run to run.
struct LaunchSite {
  uint32_t kernel = 0;  // in plan.kernels
  void** buffers = nullptr;
  const int64_t* ints = nullptr;
  int64_t shared_nbytes = 0;
  int64_t per_worker_nbytes = 0;
};

/// The prepared launches of one binding.
class Launches {
 public:
  virtual ~Launches() = default;
  /// Workspace for all of them: they run one after the other.
  virtual int64_t workspace_nbytes() const = 0;
  virtual void set_workspace(void* workspace) = 0;
  /// Runs launch `i`; HT_KERNEL_OK or what the kernel returned.
  virtual int32_t run(uint32_t i) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual ht_device dl_device() const = 0;

  /// Resolves the kernels of a program; call once a program, in order.
  virtual Status add_program(const Program& program) = 0;
  /// The address of a constant.
  virtual const void* constant(size_t constant) const = 0;

  virtual void* allocate(size_t nbytes, size_t alignment) const = 0;
  virtual void release(void* memory, size_t nbytes) const = 0;

  virtual void read(void* host, const void* device, int64_t nbytes) const = 0;
  virtual void write(void* device, const void* host, int64_t nbytes) const = 0;
  virtual void zero(void* device, int64_t nbytes) const = 0;
  virtual void copy(void* to, const void* from, const Layout& layout) const = 0;
  virtual void fill(void* to, int64_t bits, const Layout& layout) const = 0;

  virtual std::unique_ptr<Launches> prepare(size_t program, const std::vector<LaunchSite>& sites,
                                            const HtParallel* parallel) const = 0;
};

/// What holds the constants: the bundle, its external weights, or both. Null where there are none.
struct WeightBytes {
  std::shared_ptr<const Bytes> bundle, external;
};

/// The CPU, with the code of the target's library.
Status make_cpu_device(const Bundle& bundle, const ManifestTarget& target, const WeightBytes& bytes,
                       std::unique_ptr<Device>* device);

}  // namespace hardtack::rt
