// The CUDA side of device.h: cuda_device.cpp has the context, the kernels and the constants, cuda_queue.cpp what a
// session does with them, cuda_launches.cpp the launches of a binding.
#pragma once

#include <map>
#include <mutex>

#include "cuda_driver.h"
#include "device.h"
#include "elf_check.h"

namespace hardtack::rt {

/// A device's primary context, which all users of CUDA in the process share. Retained once a device.
class CudaContext {
 public:
  static Status open(const cuda::Driver& driver, int ordinal, std::shared_ptr<const CudaContext>* context);
  ~CudaContext() { driver.context_release(properties.id); }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Makes it this thread's context; false where nothing needs a `pop`: where it is already, as after any use of torch, or
  /// cannot be, which the driver says at each call that follows.
  bool push() const {
    cuda::Context current = nullptr;
    if (driver.context_current(&current) == cuda::kSuccess && current == handle_) return false;
    return driver.context_push(handle_) == cuda::kSuccess;
  }
  void pop() const {
    cuda::Context ignored = nullptr;
    driver.context_pop(&ignored);
  }

  const cuda::Driver& driver;
  cuda::Properties properties;

 private:
  explicit CudaContext(const cuda::Driver& opened) : driver(opened) {}
  cuda::Context handle_ = nullptr;
};

/// The context is this thread's in a block.
class CudaScope {
 public:
  explicit CudaScope(const CudaContext& context) : context_(context), pushed_(context.push()) {}
  ~CudaScope() {
    if (pushed_) context_.pop();
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaContext& context_;
  bool pushed_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const Bundle& bundle, WeightBytes bytes, std::shared_ptr<const CudaContext> context);
  ~CudaDevice() override;

  ht_device dl_device() const override;
  bool reaches(const ht_device& device) const override;
  bool stages_host() const override { return true; }
  int64_t pointer_alignment() const override { return 16; }
  int64_t memory_alignment() const override { return 256; }
  Status add_program(const Program& program) override;
  Status finish_loading() override;
  const void* constant(size_t constant) const override;
  Status open_queue(const QueueOptions& options, std::unique_ptr<Queue>* queue) const override;
  Status allocate(size_t nbytes, void** memory) const override;
  void release(void* memory) const override;

  const std::shared_ptr<const CudaContext>& context() const { return context_; }
  size_t num_programs() const { return programs_.size(); }
  const Program& program(size_t i) const { return *programs_[i]; }
  /// Whether any kernel may report a fault.
  bool has_faults() const { return has_faults_; }
  /// The function of a kernel, loaded when it is first asked for. The context must be current. Any thread.
  Status function(size_t program, uint32_t kernel, cuda::Function* function) const;

 private:
  struct Code {
    std::string bytes;        // until it is loaded
    FunctionNames functions;  // that programs use
    cuda::Module module = nullptr;
  };
  struct Slot {
    cuda::Function function = nullptr;
    uint32_t shared_nbytes = 0;  // what the function may use at most
  };
  Status load(const GpuKernel& kernel, cuda::Module* module) const;
  Status check_params(const Plan& plan, const Kernel& kernel, cuda::Function function) const;
  Status allow_shared(const Kernel& kernel, const GpuKernel& gpu, Slot* slot) const;
  Status read_code();
  void place_constants();
  Status upload() const;

  const Bundle& bundle_;
  WeightBytes bytes_;
  std::shared_ptr<const CudaContext> context_;
  const cuda::Driver& driver_;
  std::vector<const Program*> programs_;
  bool has_faults_ = false;
  mutable std::mutex mutex_;                                   // guards the three below
  mutable std::vector<std::vector<cuda::Function>> resolved_;  // by program and kernel
  const char* arch_ = "";                                      // that the target requires
  mutable std::map<std::string, Code> code_;                   // by member
  mutable std::map<std::string, Slot> functions_;              // by member and function
  std::vector<int64_t> places_;                                // of the constants; -1: no program uses it
  int64_t constants_nbytes_ = 0;
  cuda::Pointer constants_ = 0;
};

class CudaQueue : public Queue {
 public:
  static Status open(const CudaDevice& device, const QueueOptions& options, std::unique_ptr<Queue>* queue);
  ~CudaQueue() override;

  bool enter() override { return context_->push(); }
  void leave(bool entered) override {
    if (entered) context_->pop();
  }
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
  Status synchronize(Fault* fault) override;
  Status poll(Fault* fault) override;
  Status set_stream(void* stream) override;
  void* stream_handle() const override { return stream_; }
  bool asynchronous() const override { return asynchronous_; }
  bool can_record() const override { return true; }
  Status begin_recording() override;
  Status end_recording(bool good, std::unique_ptr<Recording>* recording) override;

  const cuda::Driver& driver() const { return driver_; }
  cuda::Stream stream() const { return stream_; }
  const CudaDevice& device() const { return device_; }
  /// The address of the word in which a program's kernels report.
  void* fault_word(size_t program) const;

 private:
  CudaQueue(const CudaDevice& device, bool asynchronous);
  Status start(void* stream);
  Status wait();
  size_t faults_nbytes() const;
  bool find_fault(Fault* fault) const;
  Status clear_faults();

  const CudaDevice& device_;
  const std::shared_ptr<const CudaContext> context_;
  const cuda::Driver& driver_;
  const bool asynchronous_;
  cuda::Stream own_ = nullptr;     // also what recordings are made on
  cuda::Stream stream_ = nullptr;  // where work goes
  cuda::Stream before_recording_ = nullptr;
  cuda::Event event_ = nullptr;
  // One i32 a program, site << 8 | code, in page-locked memory of the host: kernels write to it only when something is
  // wrong, and whoever waits for them reads it without a copy.
  int32_t* faults_ = nullptr;
};

/// The launches of a binding: everything that the driver takes, laid out once.
Status prepare_cuda_launches(const CudaQueue& queue, size_t program, const std::vector<LaunchSite>& sites,
                             std::unique_ptr<Launches>* launches);

}  // namespace hardtack::rt
