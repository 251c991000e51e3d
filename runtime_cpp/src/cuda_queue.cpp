#include <cstring>

#include "cuda_device.h"

namespace hardtack::rt {
namespace {

using cuda::address;

size_t size_of(int64_t nbytes) { return static_cast<size_t>(nbytes); }

// Each status word stands alone in 16 bytes: kernels count on pointers that are aligned to that.
constexpr size_t kWordsApart = 4;

class CudaRecording : public Recording {
 public:
  CudaRecording(const CudaQueue& queue, cuda::GraphExec exec) : queue_(queue), exec_(exec) {}
  ~CudaRecording() override { queue_.driver().graph_exec_destroy(exec_); }
  Status replay() override {
    return queue_.driver().check(queue_.driver().graph_launch(exec_, queue_.stream()),
                                 "launching the run's CUDA graph");
  }

 private:
  const CudaQueue& queue_;
  cuda::GraphExec exec_;
};

}  // namespace

CudaQueue::CudaQueue(const CudaDevice& device, bool asynchronous)
    : device_(device), context_(device.context()), driver_(context_->driver), asynchronous_(asynchronous) {}

Status CudaQueue::open(const CudaDevice& device, const QueueOptions& options, std::unique_ptr<Queue>* queue) {
  std::unique_ptr<CudaQueue> opened(new CudaQueue(device, options.asynchronous));
  const CudaScope scope(*opened->context_);
  HT_RETURN_IF_ERROR(opened->start(options.stream));
  *queue = std::move(opened);
  return Status();
}

Status CudaQueue::start(void* stream) {
  HT_RETURN_IF_ERROR(driver_.check(driver_.stream_create(&own_, cuda::kStreamNonBlocking), "creating a stream"));
  HT_RETURN_IF_ERROR(driver_.check(driver_.event_create(&event_, cuda::kEventDisableTiming), "creating an event"));
  stream_ = stream == nullptr ? own_ : static_cast<cuda::Stream>(stream);
  if (!device_.has_faults()) return Status();
  void* words = nullptr;
  HT_RETURN_IF_ERROR(driver_.check(driver_.allocate_host(&words, faults_nbytes()), "allocating the status words"));
  faults_ = static_cast<int32_t*>(words);
  std::memset(faults_, 0, faults_nbytes());
  return Status();
}

CudaQueue::~CudaQueue() {
  const CudaScope scope(*context_);
  if (stream_ != nullptr) driver_.stream_synchronize(stream_);
  if (faults_ != nullptr) driver_.release_host(faults_);
  if (event_ != nullptr) driver_.event_destroy(event_);
  if (own_ != nullptr) driver_.stream_destroy(own_);
}

Status CudaQueue::allocate(size_t nbytes, void** memory) {
  cuda::Pointer pointer = 0;
  const std::string what = "allocating " + std::to_string(nbytes) + " bytes on the device";
  HT_RETURN_IF_ERROR(driver_.check(driver_.allocate(&pointer, nbytes), what.c_str()));
  *memory = cuda::pointer(pointer);
  return Status();
}

// The driver waits for work that still uses the memory.
void CudaQueue::release(void* memory) { driver_.release(address(memory)); }

Status CudaQueue::allocate_host(size_t nbytes, void** memory) {
  const std::string what = "allocating " + std::to_string(nbytes) + " bytes of page-locked memory";
  return driver_.check(driver_.allocate_host(memory, nbytes), what.c_str());
}

void CudaQueue::release_host(void* memory) {
  driver_.stream_synchronize(stream_);
  driver_.release_host(memory);
}

Status CudaQueue::fetch(void* host, const void* device, int64_t nbytes) {
  if (nbytes == 0) return Status();
  return driver_.check(driver_.copy_out(host, address(device), size_of(nbytes), stream_), "copying to the host");
}

Status CudaQueue::send(void* device, const void* host, int64_t nbytes) {
  if (nbytes == 0) return Status();
  return driver_.check(driver_.copy_in(address(device), host, size_of(nbytes), stream_), "copying to the device");
}

Status CudaQueue::read(void* host, const void* device, int64_t nbytes) {
  HT_RETURN_IF_ERROR(fetch(host, device, nbytes));
  return wait();
}

Status CudaQueue::write(void* device, const void* host, int64_t nbytes) {
  HT_RETURN_IF_ERROR(send(device, host, nbytes));
  return wait();
}

Status CudaQueue::zero(void* device, int64_t nbytes) {
  if (nbytes == 0) return Status();
  return driver_.check(driver_.fill8(address(device), 0, size_of(nbytes), stream_), "zeroing device memory");
}

Status CudaQueue::copy(void* to, const void* from, int64_t nbytes) {
  if (nbytes == 0) return Status();
  return driver_.check(driver_.copy(address(to), address(from), size_of(nbytes), stream_), "copying on the device");
}

Status CudaQueue::fill(void* memory, int64_t bits, int64_t itemsize, int64_t nbytes) {
  if (nbytes == 0) return Status();
  const cuda::Pointer to = address(memory);
  const size_t count = size_of(nbytes / itemsize);
  const unsigned low = static_cast<unsigned>(bits), high = static_cast<unsigned>(static_cast<uint64_t>(bits) >> 32);
  cuda::Result result = cuda::kSuccess;
  if (itemsize == 1)
    result = driver_.fill8(to, static_cast<unsigned char>(low), count, stream_);
  else if (itemsize == 2)
    result = driver_.fill16(to, static_cast<unsigned short>(low), count, stream_);
  else if (itemsize == 4)
    result = driver_.fill32(to, low, count, stream_);
  else if (low == high)
    result = driver_.fill32(to, low, 2 * count, stream_);
  else {
    // Each half as a column of a matrix with rows of 8 bytes.
    result = driver_.fill2d32(to, 8, low, 1, count, stream_);
    if (result == cuda::kSuccess) result = driver_.fill2d32(to + 4, 8, high, 1, count, stream_);
  }
  return driver_.check(result, "filling device memory");
}

Status CudaQueue::prepare(size_t program, const std::vector<LaunchSite>& sites, std::unique_ptr<Launches>* launches) {
  return prepare_cuda_launches(*this, program, sites, launches);
}

// Its address is the same for the device: all GPUs and drivers that run bundles have unified addressing.
void* CudaQueue::fault_word(size_t program) const { return faults_ + program * kWordsApart; }

size_t CudaQueue::faults_nbytes() const { return device_.num_programs() * kWordsApart * sizeof(int32_t); }

Status CudaQueue::wait() { return driver_.check(driver_.stream_synchronize(stream_), "waiting for the device"); }

bool CudaQueue::find_fault(Fault* fault) const {
  const volatile int32_t* words = faults_;
  for (size_t i = 0; i < device_.num_programs(); ++i) {
    const uint32_t word = static_cast<uint32_t>(words[i * kWordsApart]);
    if (word == 0) continue;
    *fault = {static_cast<uint32_t>(i), (word >> 8) - 1, static_cast<int32_t>(word & 0xFF)};
    return true;
  }
  return false;
}

// Waits first: kernels that still run may report again.
Status CudaQueue::clear_faults() {
  HT_RETURN_IF_ERROR(wait());
  std::memset(faults_, 0, faults_nbytes());
  return Status();
}

Status CudaQueue::synchronize(Fault* fault) {
  HT_RETURN_IF_ERROR(wait());
  return fault == nullptr ? Status() : poll(fault);
}

Status CudaQueue::poll(Fault* fault) { return faults_ != nullptr && find_fault(fault) ? clear_faults() : Status(); }

Status CudaQueue::set_stream(void* stream) {
  const cuda::Stream next = stream == nullptr ? own_ : static_cast<cuda::Stream>(stream);
  if (next == stream_) return Status();
  HT_RETURN_IF_ERROR(driver_.check(driver_.event_record(event_, stream_), "leaving a stream"));
  HT_RETURN_IF_ERROR(driver_.check(driver_.stream_wait(next, event_, 0), "changing to another stream"));
  stream_ = next;
  return Status();
}

// On the queue's own stream: the legacy default stream, which a caller may have chosen, cannot be recorded.
Status CudaQueue::begin_recording() {
  HT_RETURN_IF_ERROR(
      driver_.check(driver_.capture_begin(own_, cuda::kCaptureThreadLocal), "starting to record a CUDA graph"));
  before_recording_ = stream_;
  stream_ = own_;
  return Status();
}

Status CudaQueue::end_recording(bool good, std::unique_ptr<Recording>* recording) {
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  stream_ = before_recording_;
  Status status = driver_.check(driver_.capture_end(own_, &graph), "recording a CUDA graph");
  if (status.ok() && good) {
    status = driver_.check(driver_.graph_instantiate(&exec, graph, 0), "making a CUDA graph ready");
  }
  if (graph != nullptr) driver_.graph_destroy(graph);
  if (status.ok() && good) *recording = std::make_unique<CudaRecording>(*this, exec);
  return status;
}

}  // namespace hardtack::rt
