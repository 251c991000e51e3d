// The seam between the runtime and what runs kernels. Outside a device's own files a device pointer is only passed on,
// never followed: sessions, bindings and the interpreter do not know where memory lies.
//
//   Device    one model on one device: its kernels and constants; shared by sessions, immutable after add_program
//   Queue     what one session does on it, in order: memory, copies, launches, waiting
//   Launches  the prepared launches of one binding
#pragma once

#include <memory>

#include "bundle.h"
#include "program.h"

namespace hardtack::rt {

/// What a launch gives a tensor map, evaluated. In elements.
struct MapSite {
  uint32_t buffer = 0;  // among the launch's buffers
  int64_t offset = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
};

/// What a launch gets, gathered by the binding. `buffers` and `ints` stay where they are; the pointers inside `buffers`
/// change from run to run.
struct LaunchSite {
  uint32_t kernel = 0;  // in plan.kernels
  void** buffers = nullptr;
  const int64_t* ints = nullptr;
  int64_t shared_nbytes = 0;      // on the CPU
  int64_t per_worker_nbytes = 0;  // on the CPU
  int64_t grid[3] = {1, 1, 1};    // on a GPU
  const MapSite* maps = nullptr;  // on a GPU
  bool ready = true;              // false: its numbers are not known, and it is not run
};

/// The prepared launches of one binding.
class Launches {
 public:
  virtual ~Launches() = default;
  /// Workspace for all of them: they run one after the other.
  virtual int64_t workspace_nbytes() const = 0;
  virtual void set_workspace(void* workspace) = 0;
  /// After the pointers inside the sites' `buffers` have changed.
  virtual Status pointers_changed() { return Status(); }
  /// Runs launch `i`, or enqueues it. `code`: HT_KERNEL_OK, or what the kernel returned.
  virtual Status run(uint32_t i, int32_t* code) = 0;
};

/// A sequence of steps that a queue has recorded and repeats at once.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Status replay() = 0;
};

/// A launch that a kernel reported after the fact.
struct Fault {
  uint32_t program = 0;
  uint32_t launch = 0;  // in program.launches
  int32_t code = 0;     // HT_KERNEL_OK: there is no fault
};

/// Where a queue's work goes and how a run ends.
struct QueueOptions {
  HtParallel parallel = {};   // CPU
  void* stream = nullptr;     // CUDA: the caller's; null: one of the queue's own
  bool asynchronous = false;  // CUDA: runs return when everything is enqueued
};

/// Belongs to one session. Between `enter` and `leave` the calling thread may use it; both are cheap. `enter` says whether
/// it changed anything, for `leave` to undo.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual bool enter() { return false; }
  virtual void leave(bool entered) { static_cast<void>(entered); }

  virtual Status allocate(size_t nbytes, void** memory) = 0;
  virtual void release(void* memory) = 0;
  /// Host memory that copies to and from the device are fast with.
  virtual Status allocate_host(size_t nbytes, void** memory) = 0;
  virtual void release_host(void* memory) = 0;

  /// Copies between host and device. `read` and `write` wait until `host` may be used again; `fetch` and `send` only
  /// enqueue, and the host side must stay until `synchronize`.
  virtual Status read(void* host, const void* device, int64_t nbytes) = 0;
  virtual Status write(void* device, const void* host, int64_t nbytes) = 0;
  virtual Status fetch(void* host, const void* device, int64_t nbytes) = 0;
  virtual Status send(void* device, const void* host, int64_t nbytes) = 0;
  virtual Status zero(void* device, int64_t nbytes) = 0;
  virtual Status copy(void* to, const void* from, int64_t nbytes) = 0;
  /// Every `itemsize` bytes of `nbytes` get the low bytes of `bits`.
  virtual Status fill(void* to, int64_t bits, int64_t itemsize, int64_t nbytes) = 0;

  /// Prepares the launches of a binding of program `program`. HT_CONTRACT where a kernel cannot take the sizes.
  virtual Status prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) = 0;

  /// Waits for all that was enqueued; `fault` tells what a kernel reported since the last time.
  virtual Status synchronize(Fault* fault) = 0;
  /// The end of a run that does not wait: `fault` tells what kernels have reported so far.
  virtual Status poll(Fault* fault) = 0;
  /// Later work goes to this stream, after all earlier work.
  virtual Status set_stream(void* stream) = 0;
  virtual void* stream_handle() const { return nullptr; }
  virtual bool asynchronous() const { return false; }
  /// Whether the host can follow device pointers.
  virtual bool follows_pointers() const { return false; }

  virtual bool can_record() const { return false; }
  virtual Status begin_recording() { return Status(); }
  /// Ends it, whether what was recorded was `good` or not; gives nothing in the second case.
  virtual Status end_recording(bool good, std::unique_ptr<Recording>* recording);
};

/// `enter` and `leave` around a block.
class Entered {
 public:
  explicit Entered(Queue* queue) : queue_(queue), entered_(queue->enter()) {}
  ~Entered() { queue_->leave(entered_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Queue* queue_;
  bool entered_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual ht_device dl_device() const = 0;
  /// Whether kernels can work on a tensor that lies there.
  virtual bool reaches(const ht_device& device) const = 0;
  /// Whether tensors on the host are copied to the device for a run, and back.
  virtual bool stages_host() const { return false; }
  /// What kernels expect of every pointer; a tensor that has less is copied. 1: whatever its dtype needs.
  virtual int64_t pointer_alignment() const { return 1; }
  /// What `Queue::allocate` gives.
  virtual int64_t memory_alignment() const = 0;

  /// Resolves the kernels of a program; call once a program, in order.
  virtual Status add_program(const Program& program) = 0;
  /// Makes the constants ready; after the last add_program.
  virtual Status finish_loading() { return Status(); }
  /// The address of a constant; null for one that no program uses.
  virtual const void* constant(size_t constant) const = 0;

  virtual Status open_queue(const QueueOptions& options, std::unique_ptr<Queue>* queue) const = 0;

  /// Memory for callers, outside of sessions.
  virtual Status allocate(size_t nbytes, void** memory) const = 0;
  virtual void release(void* memory) const = 0;
};

/// Which device a caller wants: "cpu", "cuda" or "cuda:1".
struct DeviceName {
  std::string kind = "cpu";
  int ordinal = 0;
};
Status parse_device(const char* text, DeviceName* name);

/// The CPU, with the code of the target's library.
Status make_cpu_device(const Bundle& bundle, const ManifestTarget& target, const WeightBytes& bytes,
                       std::unique_ptr<Device>* device);

/// A CUDA device through the driver library at `driver_path` (null: the system's).
Status make_cuda_device(const Bundle& bundle, const ManifestTarget& target, const WeightBytes& bytes,
                        const char* driver_path, int ordinal, std::unique_ptr<Device>* device);

/// What `choose_target` must know of the machine for a device that is not the CPU.
Status read_machine(const DeviceName& device, const char* driver_path, Machine* machine);

}  // namespace hardtack::rt
