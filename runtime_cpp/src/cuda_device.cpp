#include "cuda_device.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "checked.h"
#include "elf_check.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kConstantAlignment = 256;
constexpr int64_t kUploadChunk = int64_t{8} << 20;
constexpr int kDlCuda = 2;
constexpr int kDlCudaManaged = 13;
constexpr uint32_t kSharedWithoutAsking = 48 * 1024;
constexpr uint32_t kPortableCluster = 8;

}  // namespace

Status read_machine(const DeviceName& device, const char* driver_path, Machine* machine) {
  machine->device = device.kind;
  if (device.kind == "cpu") return Status();
  const cuda::Driver* driver = nullptr;
  cuda::Properties properties;
  HT_RETURN_IF_ERROR(cuda::Driver::open(driver_path, &driver));
  HT_RETURN_IF_ERROR(cuda::read_properties(*driver, device.ordinal, &properties));
  machine->arch = properties.arch;
  machine->name = properties.name;
  return Status();
}

Status make_cuda_device(const Bundle& bundle, const ManifestTarget&, const WeightBytes& bytes, const char* driver_path,
                        int ordinal, std::unique_ptr<Device>* device) {
  const cuda::Driver* driver = nullptr;
  std::shared_ptr<const CudaContext> context;
  HT_RETURN_IF_ERROR(cuda::Driver::open(driver_path, &driver));
  HT_RETURN_IF_ERROR(CudaContext::open(*driver, ordinal, &context));
  *device = std::make_unique<CudaDevice>(bundle, bytes, std::move(context));
  return Status();
}

Status CudaContext::open(const cuda::Driver& driver, int ordinal, std::shared_ptr<const CudaContext>* context) {
  static std::mutex mutex;
  static auto* opened = new std::map<std::pair<const cuda::Driver*, int>, std::weak_ptr<const CudaContext>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<const CudaContext>& slot = (*opened)[{&driver, ordinal}];
  *context = slot.lock();
  if (*context != nullptr) return Status();
  cuda::Properties properties;
  cuda::Context handle = nullptr;
  HT_RETURN_IF_ERROR(cuda::read_properties(driver, ordinal, &properties));
  HT_RETURN_IF_ERROR(driver.check(driver.context_retain(&handle, properties.id), "opening the CUDA device"));
  const std::shared_ptr<CudaContext> fresh(new CudaContext(driver));
  fresh->properties = std::move(properties);
  fresh->handle_ = handle;
  slot = *context = fresh;
  return Status();
}

CudaDevice::CudaDevice(const Bundle& bundle, WeightBytes bytes, std::shared_ptr<const CudaContext> context)
    : bundle_(bundle), bytes_(std::move(bytes)), context_(std::move(context)), driver_(context_->driver) {}

CudaDevice::~CudaDevice() {
  const CudaScope scope(*context_);
  for (auto& [name, code] : code_) {
    if (code.module != nullptr) driver_.module_unload(code.module);
  }
  if (constants_ != 0) driver_.release(constants_);
}

ht_device CudaDevice::dl_device() const {
  ht_device device{};
  device.device_type = static_cast<decltype(device.device_type)>(kDlCuda);
  device.device_id = context_->properties.ordinal;
  return device;
}

bool CudaDevice::reaches(const ht_device& device) const {
  const int type = static_cast<int>(device.device_type);
  return type == kDlCudaManaged || (type == kDlCuda && device.device_id == context_->properties.ordinal);
}

Status CudaDevice::add_program(const Program& program) {
  const Manifest& manifest = bundle_.manifest();
  arch_ = manifest.targets[static_cast<size_t>(manifest.find_target(program.plan.target))].requirements[0];
  for (const GpuKernel& kernel : program.plan.gpu_kernels) code_[kernel.member].functions.insert(kernel.function);
  for (const GpuArg& arg : program.plan.gpu_args) has_faults_ = has_faults_ || arg.kind == GpuArgKind::status;
  programs_.push_back(&program);
  resolved_.emplace_back(program.plan.kernels.size(), nullptr);
  return Status();
}

// Reads the kernels' code while the bundle is open; a module is loaded when it is first used.
Status CudaDevice::read_code() {
  for (auto& [member, code] : code_) {
    HT_RETURN_IF_ERROR(bundle_.read(member.c_str(), &code.bytes));
    HT_RETURN_IF_ERROR(check_kernel_code(code.bytes, member.c_str(), arch_, code.functions));
  }
  return Status();
}

Status CudaDevice::load(const GpuKernel& kernel, cuda::Module* module) const {
  Code& code = code_[kernel.member];
  if (code.module == nullptr) {
    const std::string what = "loading the kernel code " + std::string(kernel.member);
    HT_RETURN_IF_ERROR(driver_.check(driver_.module_load(&code.module, code.bytes.data()), what.c_str()));
    code.bytes = std::string();
  }
  *module = code.module;
  return Status();
}

Status CudaDevice::function(size_t program, uint32_t kernel, cuda::Function* function) const {
  const Plan& plan = programs_[program]->plan;
  const Kernel& record = plan.kernels[kernel];
  const GpuKernel& gpu = plan.gpu_kernels[record.gpu];
  const std::lock_guard<std::mutex> lock(mutex_);
  cuda::Function& resolved = resolved_[program][kernel];
  if (resolved != nullptr) return *function = resolved, Status();
  Slot& slot = functions_[std::string(gpu.member) + ":" + gpu.function];
  if (slot.function == nullptr) {
    cuda::Module module = nullptr;
    HT_RETURN_IF_ERROR(load(gpu, &module));
    const std::string what = "finding the function " + std::string(gpu.function) + " of kernel " + record.name;
    HT_RETURN_IF_ERROR(driver_.check(driver_.module_function(&slot.function, module, gpu.function), what.c_str()));
  }
  HT_RETURN_IF_ERROR(check_params(plan, record, slot.function));
  HT_RETURN_IF_ERROR(allow_shared(record, gpu, &slot));
  *function = resolved = slot.function;
  return Status();
}

// The plan's parameters against those of the compiled function, where the driver can tell (CUDA 12.4 and later).
Status CudaDevice::check_params(const Plan& plan, const Kernel& kernel, cuda::Function function) const {
  if (driver_.function_param == nullptr) return Status();
  const GpuKernel& gpu = plan.gpu_kernels[kernel.gpu];
  size_t end = 0;
  for (uint32_t n = 0; n < gpu.num_args; ++n) {
    const size_t nbytes = gpu_arg_nbytes(plan.gpu_args[gpu.first_arg + n]), align = nbytes < 64 ? nbytes : 64;
    size_t offset = 0, found = 0;
    const bool exists = driver_.function_param(function, n, &offset, &found) == cuda::kSuccess;
    // A tensor map is aligned to 64 bytes in the constant bank, which does not start the parameters at a multiple of 64.
    const bool in_place = nbytes < 64 ? offset == (end + align - 1) / align * align : offset - end < align;
    if (!exists || !in_place || found != nbytes) {
      return error(HT_BAD_BUNDLE, "kernel %s: parameter %u of %s has %zu bytes at %zu, the plan says %zu behind %zu",
                   kernel.name, n, gpu.function, found, offset, nbytes, end);
    }
    end = offset + nbytes;
  }
  size_t offset = 0, nbytes = 0;
  if (driver_.function_param(function, gpu.num_args, &offset, &nbytes) != cuda::kSuccess) return Status();
  return error(HT_BAD_BUNDLE, "kernel %s: %s has more parameters than the %u of the plan", kernel.name, gpu.function,
               gpu.num_args);
}

Status CudaDevice::allow_shared(const Kernel& kernel, const GpuKernel& gpu, Slot* slot) const {
  int fixed = 0;
  HT_RETURN_IF_ERROR(driver_.check(driver_.function_get(&fixed, cuda::kFunctionSharedNbytes, slot->function),
                                   "reading a kernel's shared memory"));
  const int64_t total = int64_t{gpu.shared_nbytes} + fixed;
  const cuda::Properties& here = context_->properties;
  if (total > here.max_shared_nbytes) {
    return error(HT_NO_TARGET, "kernel %s needs %lld bytes of shared memory; this device (%s) gives a block at most %d",
                 kernel.name, static_cast<long long>(total), here.name.c_str(), here.max_shared_nbytes);
  }
  if (total > kSharedWithoutAsking && gpu.shared_nbytes > slot->shared_nbytes) {
    HT_RETURN_IF_ERROR(driver_.check(
        driver_.function_set(slot->function, cuda::kFunctionMaxDynamicShared, static_cast<int>(gpu.shared_nbytes)),
        "asking for shared memory"));
    slot->shared_nbytes = gpu.shared_nbytes;
  }
  if (gpu.cluster <= kPortableCluster) return Status();
  return driver_.check(driver_.function_set(slot->function, cuda::kFunctionNonPortableCluster, 1),
                       "asking for large clusters");
}

// Constants of the same bytes lie in one place; what no program reads is left out. An empty constant has no bytes, and the
// address of the one behind it: an address alone tells no constant.
void CudaDevice::place_constants() {
  const Manifest& manifest = bundle_.manifest();
  std::vector<bool> used(manifest.constants.size(), false);
  for (const Program* program : programs_) {
    for (const Value& v : program->plan.values) {
      if (v.storage == Storage::constant) used[v.at] = true;
    }
  }
  for (const ManifestArray& state : manifest.states) {
    if (state.init != nullptr) used[static_cast<size_t>(manifest.find_constant(state.init))] = true;
  }
  std::map<std::pair<const uint8_t*, int64_t>, int64_t> placed;  // by where the bytes are, and how many
  places_.assign(used.size(), -1);
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const int64_t nbytes = manifest.constants[i].nbytes;
    const auto [at, fresh] = placed.emplace(std::pair(bytes_.at(bundle_.constant_place(i)), nbytes), constants_nbytes_);
    if (fresh) constants_nbytes_ += round_up(std::max<int64_t>(nbytes, 1), kConstantAlignment);
    places_[i] = at->second;
  }
}

Status CudaDevice::finish_loading() {
  HT_RETURN_IF_ERROR(read_code());
  place_constants();
  if (constants_nbytes_ == 0) return Status();
  const CudaScope scope(*context_);
  const std::string what = "allocating " + std::to_string(constants_nbytes_) + " bytes for the weights";
  HT_RETURN_IF_ERROR(
      driver_.check(driver_.allocate(&constants_, static_cast<size_t>(constants_nbytes_)), what.c_str()));
  return upload();
}

namespace {

// Two page-locked buffers in turn: one is filled from the bundle while the other travels.
class Upload {
 public:
  Upload(const cuda::Driver& driver, int64_t chunk_nbytes) : driver_(driver), chunk_(chunk_nbytes) {}
  ~Upload() {
    if (stream_ != nullptr) driver_.stream_synchronize(stream_);
    for (int i = 0; i < 2; ++i) {
      if (sent_[i] != nullptr) driver_.event_destroy(sent_[i]);
      if (buffers_[i] != nullptr) driver_.release_host(buffers_[i]);
    }
    if (stream_ != nullptr) driver_.stream_destroy(stream_);
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  Status start() {
    HT_RETURN_IF_ERROR(driver_.check(driver_.stream_create(&stream_, cuda::kStreamNonBlocking), "creating a stream"));
    for (int i = 0; i < 2; ++i) {
      HT_RETURN_IF_ERROR(
          driver_.check(driver_.event_create(&sent_[i], cuda::kEventDisableTiming), "creating an event"));
      HT_RETURN_IF_ERROR(driver_.check(driver_.allocate_host(&buffers_[i], static_cast<size_t>(chunk_)),
                                       "allocating page-locked memory for the weights' way to the device"));
    }
    return Status();
  }

  Status send(cuda::Pointer to, const uint8_t* from, int64_t nbytes) {
    for (int64_t at = 0; at < nbytes; at += chunk_) {
      const size_t count = static_cast<size_t>(std::min(chunk_, nbytes - at));
      turn_ = 1 - turn_;
      HT_RETURN_IF_ERROR(driver_.check(driver_.event_synchronize(sent_[turn_]), "waiting for weights to arrive"));
      std::memcpy(buffers_[turn_], from + at, count);
      HT_RETURN_IF_ERROR(driver_.check(driver_.copy_in(to + static_cast<uint64_t>(at), buffers_[turn_], count, stream_),
                                       "sending weights"));
      HT_RETURN_IF_ERROR(driver_.check(driver_.event_record(sent_[turn_], stream_), "sending weights"));
    }
    return Status();
  }

  Status finish() { return driver_.check(driver_.stream_synchronize(stream_), "waiting for weights to arrive"); }

 private:
  const cuda::Driver& driver_;
  const int64_t chunk_;
  cuda::Stream stream_ = nullptr;
  cuda::Event sent_[2] = {};
  void* buffers_[2] = {};
  int turn_ = 0;
};

}  // namespace

Status CudaDevice::upload() const {
  const std::vector<ManifestArray>& constants = bundle_.manifest().constants;
  std::vector<bool> sent(static_cast<size_t>(constants_nbytes_ / kConstantAlignment), false);
  Upload upload(driver_, std::min(kUploadChunk, constants_nbytes_));
  HT_RETURN_IF_ERROR(upload.start());
  for (size_t i = 0; i < constants.size(); ++i) {
    if (places_[i] < 0 || sent[static_cast<size_t>(places_[i] / kConstantAlignment)]) continue;
    sent[static_cast<size_t>(places_[i] / kConstantAlignment)] = true;
    HT_RETURN_IF_ERROR(in_context(upload.send(constants_ + static_cast<uint64_t>(places_[i]),
                                              bytes_.at(bundle_.constant_place(i)), constants[i].nbytes),
                                  "constant \"" + std::string(constants[i].name) + "\""));
  }
  return upload.finish();
}

const void* CudaDevice::constant(size_t constant) const {
  if (places_[constant] < 0) return nullptr;
  return cuda::pointer(constants_ + static_cast<uint64_t>(places_[constant]));
}

Status CudaDevice::open_queue(const QueueOptions& options, std::unique_ptr<Queue>* queue) const {
  return CudaQueue::open(*this, options, queue);
}

Status CudaDevice::allocate(size_t nbytes, void** memory) const {
  const CudaScope scope(*context_);
  cuda::Pointer pointer = 0;
  const std::string what = "allocating " + std::to_string(nbytes) + " bytes on the device";
  HT_RETURN_IF_ERROR(driver_.check(driver_.allocate(&pointer, std::max<size_t>(nbytes, 1)), what.c_str()));
  *memory = cuda::pointer(pointer);
  return Status();
}

void CudaDevice::release(void* memory) const {
  const CudaScope scope(*context_);
  if (memory != nullptr) driver_.release(cuda::address(memory));
}

}  // namespace hardtack::rt
