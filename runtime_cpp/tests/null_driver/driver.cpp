// The entry points of the null driver.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "state.h"

using namespace null_driver;
using namespace hardtack::rt::cuda;

namespace {

constexpr Result kInvalidValue = 1, kInvalidContext = 201, kInvalidImage = 200, kNotFound = 500, kInvalidHandle = 400,
                 kCaptureUnsupported = 900;

thread_local std::vector<Context> current;
thread_local bool refused = false;  // the last context was not made current, as the test asked
thread_local void* capturing = nullptr;

// The start of every function: the lock, the injected error, and for most of them a current context.
struct Call {
  explicit Call(const char* name, bool needs_context = true, bool in_capture = true)
      : state(State::get()), lock(state.mutex), error(state.injected(name)) {
    if (needs_context && current.empty()) {
      if (!refused) state.problem("%s: no context is current", name);
      error = kInvalidContext;
    } else if (!in_capture && capturing != nullptr) {
      state.problem("%s: during a capture", name);
      error = kCaptureUnsupported;
    }
  }
  State& state;
  std::lock_guard<std::mutex> lock;
  Result error;
};

#define HT_NULL_CALL(...) \
  Call call(__VA_ARGS__); \
  if (call.error != 0) return call.error

StreamState* stream_of(State& state, Stream stream) {
  if (state.streams.count(stream) != 0) return reinterpret_cast<StreamState*>(stream);
  return nullptr;
}

// Does the work now, or when the graph that is being recorded is launched.
Result enqueue(State& state, const char* name, Stream stream, std::function<void()> work) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  StreamState* known = stream_of(state, stream);
  if (known == nullptr && number > 2) return state.problem("%s: an unknown stream", name), kInvalidHandle;
  if (known != nullptr && known->recording != nullptr)
    known->recording->push_back(std::move(work));
  else
    work();
  return kSuccess;
}

// Work on a range of device memory, which it writes unless the range is only read.
Result work_on(const char* name, Pointer range, size_t nbytes, Stream stream, bool writes, std::function<void()> work) {
  State& state = State::get();
  if (!state.inside(name, range, nbytes)) return kInvalidValue;
  state.note("%s %zu", name, nbytes);
  return enqueue(state, name, stream, [=, &state] {
    if (!state.inside(name, range, nbytes)) return;
    if (writes) std::memset(state.written(range), 1, nbytes);
    work();
  });
}

Result fill(const char* name, Pointer to, size_t nbytes, Stream stream, std::function<void()> work) {
  return work_on(name, to, nbytes, stream, true, std::move(work));
}

template <typename T>
void set_all(Pointer to, T value, size_t count) {
  for (size_t i = 0; i < count; ++i) std::memcpy(reinterpret_cast<char*>(to) + i * sizeof value, &value, sizeof value);
}

}  // namespace

#define HT_NULL_API extern "C" __attribute__((visibility("default")))

HT_NULL_API void ht_null_set(const char* name, const char* value) {
  State& state = State::get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.settings[name] = value;
  state.calls = 0;
}

// Texts stay good until the next call on the same thread.
HT_NULL_API const char* ht_null_take(const char* what) {
  static thread_local std::string text;
  State& state = State::get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  text.clear();
  if (std::strcmp(what, "leaks") == 0) return (text = state.leaks()).c_str();
  if (std::strcmp(what, "calls") == 0) return (text = std::to_string(state.calls)).c_str();
  std::vector<std::string>& lines = std::strcmp(what, "log") == 0 ? state.log : state.problems;
  for (const std::string& line : lines) text += line + "\n";
  lines.clear();
  return text.c_str();
}

// Null: launches do nothing. The function is called with the driver locked: it must not call the driver.
HT_NULL_API void ht_null_compute(Compute compute) {
  State& state = State::get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.compute = compute;
}

// For use while `compute` runs. The allocation around an address; false without one.
HT_NULL_API bool ht_null_allocation(uint64_t address, uint64_t* start, size_t* nbytes) {
  return State::get().allocation(address, start, nbytes);
}

// Where the driver keeps, byte for byte, what was written since it was allocated.
HT_NULL_API uint8_t* ht_null_written(uint64_t address) { return State::get().written(address); }

HT_NULL_API Result cuInit(unsigned) {
  HT_NULL_CALL("cuInit", false);
  return call.state.number("HARDTACK_NULL_DEVICES", 1) > 0 ? kSuccess : kNoDevice;
}

HT_NULL_API Result cuDriverGetVersion(int* version) { return *version = 12080, kSuccess; }

HT_NULL_API Result cuGetErrorName(Result result, const char** text) {
  static const std::map<Result, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {100, "CUDA_ERROR_NO_DEVICE"},
                                                      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
  const auto at = names.find(result);
  *text = at == names.end() ? "CUDA_ERROR_OTHER" : at->second;
  return kSuccess;
}

HT_NULL_API Result cuGetErrorString(Result, const char** text) { return *text = "as the test asked", kSuccess; }

HT_NULL_API Result cuDeviceGetCount(int* count) {
  HT_NULL_CALL("cuDeviceGetCount", false);
  *count = call.state.number("HARDTACK_NULL_DEVICES", 1);
  return kSuccess;
}

HT_NULL_API Result cuDeviceGet(DeviceId* device, int ordinal) { return *device = ordinal, kSuccess; }

HT_NULL_API Result cuDeviceGetName(char* name, int nbytes, DeviceId) {
  std::strncpy(name, "NVIDIA Null", static_cast<size_t>(nbytes));
  return kSuccess;
}

HT_NULL_API Result cuDeviceGetAttribute(int* value, int attribute, DeviceId) {
  HT_NULL_CALL("cuDeviceGetAttribute", false);
  const int arch = call.state.number("HARDTACK_NULL_ARCH", 90);
  *value = attribute == kDeviceComputeCapabilityMajor   ? arch / 10
           : attribute == kDeviceComputeCapabilityMinor ? arch % 10
           : attribute == kDeviceMaxSharedOptin         ? (arch >= 90 ? 232448 : 166912)
                                                        : 0;
  return kSuccess;
}

HT_NULL_API Result cuDevicePrimaryCtxRetain(Context* context, DeviceId device) {
  HT_NULL_CALL("cuDevicePrimaryCtxRetain", false);
  ++call.state.retained;
  call.state.note("retain %d", device);
  *context = reinterpret_cast<Context>(static_cast<uintptr_t>(device) + 1);
  return kSuccess;
}

HT_NULL_API Result cuDevicePrimaryCtxRelease_v2(DeviceId) {
  HT_NULL_CALL("cuDevicePrimaryCtxRelease_v2", false);
  if (call.state.retained-- == 0) call.state.problem("a context is released that is not retained");
  return kSuccess;
}

HT_NULL_API Result cuCtxPushCurrent_v2(Context context) {
  Call call("cuCtxPushCurrent_v2", false);
  refused = call.error != 0;
  if (!refused) current.push_back(context);
  return call.error;
}

HT_NULL_API Result cuCtxPopCurrent_v2(Context* context) {
  HT_NULL_CALL("cuCtxPopCurrent_v2", false);
  if (current.empty()) return call.state.problem("a context is taken off that was not put on"), kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

HT_NULL_API Result cuCtxGetCurrent(Context* context) {
  HT_NULL_CALL("cuCtxGetCurrent", false);
  *context = current.empty() ? nullptr : current.back();
  return kSuccess;
}

HT_NULL_API Result cuModuleLoadData(Module* module, const void* image) {
  HT_NULL_CALL("cuModuleLoadData", true, false);
  auto loaded = std::make_unique<ModuleState>();
  if (!parse_cubin(image, loaded.get())) return kInvalidImage;
  call.state.note("module");
  *module = reinterpret_cast<Module>(loaded.get());
  call.state.modules.insert(loaded.release());
  return kSuccess;
}

HT_NULL_API Result cuModuleUnload(Module module) {
  HT_NULL_CALL("cuModuleUnload");
  if (call.state.modules.erase(module) == 0) return call.state.problem("an unknown module is unloaded"), kInvalidHandle;
  delete reinterpret_cast<ModuleState*>(module);
  return kSuccess;
}

HT_NULL_API Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  HT_NULL_CALL("cuModuleGetFunction");
  auto& functions = reinterpret_cast<ModuleState*>(module)->functions;
  const auto at = functions.find(name);
  if (at == functions.end()) return kNotFound;
  *function = reinterpret_cast<Function>(&at->second);
  return kSuccess;
}

HT_NULL_API Result cuFuncSetAttribute(Function function, int attribute, int value) {
  HT_NULL_CALL("cuFuncSetAttribute");
  auto* f = reinterpret_cast<FunctionState*>(function);
  call.state.note("attribute %d = %d", attribute, value);
  if (attribute == kFunctionMaxDynamicShared) f->max_dynamic_shared = value;
  if (attribute == kFunctionNonPortableCluster) f->large_clusters = value != 0;
  return kSuccess;
}

HT_NULL_API Result cuFuncGetAttribute(int* value, int, Function) { return *value = 0, kSuccess; }

HT_NULL_API Result cuFuncGetParamInfo(Function function, size_t index, size_t* offset, size_t* nbytes) {
  HT_NULL_CALL("cuFuncGetParamInfo");
  const auto* f = reinterpret_cast<const FunctionState*>(function);
  if (index >= f->params.size()) return kInvalidValue;
  *offset = f->params[index].offset;
  *nbytes = f->params[index].nbytes;
  return kSuccess;
}

HT_NULL_API Result cuMemAlloc_v2(Pointer* memory, size_t nbytes) {
  HT_NULL_CALL("cuMemAlloc_v2", true, false);
  if (nbytes == 0) return call.state.problem("an allocation of 0 bytes"), kInvalidValue;
  *memory = call.state.allocate(nbytes);
  call.state.note("allocate %zu", nbytes);
  return *memory == 0 ? kOutOfMemory : kSuccess;
}

HT_NULL_API Result cuMemFree_v2(Pointer memory) {
  HT_NULL_CALL("cuMemFree_v2", true, false);
  return call.state.release(memory) ? kSuccess : kInvalidValue;
}

HT_NULL_API Result cuMemAllocHost_v2(void** memory, size_t nbytes) {
  HT_NULL_CALL("cuMemAllocHost_v2", true, false);
  *memory = std::aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
  call.state.host_memory[reinterpret_cast<uint64_t>(*memory)] = nbytes;
  call.state.note("allocate_host %zu", nbytes);
  return kSuccess;
}

HT_NULL_API Result cuMemFreeHost(void* memory) {
  HT_NULL_CALL("cuMemFreeHost", true, false);
  if (call.state.host_memory.erase(reinterpret_cast<uint64_t>(memory)) == 0)
    return call.state.problem("unknown host memory is freed"), kInvalidValue;
  std::free(memory);
  return kSuccess;
}

HT_NULL_API Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t nbytes, Stream stream) {
  HT_NULL_CALL("cuMemcpyHtoDAsync_v2");
  if (call.state.on_device(reinterpret_cast<Pointer>(from))) call.state.problem("copy_in from device memory");
  return fill("copy_in", to, nbytes, stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, nbytes); });
}

HT_NULL_API Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t nbytes, Stream stream) {
  HT_NULL_CALL("cuMemcpyDtoHAsync_v2");
  if (call.state.on_device(reinterpret_cast<Pointer>(to))) call.state.problem("copy_out to device memory");
  State& state = call.state;
  return work_on("copy_out", from, nbytes, stream, false, [=, &state] {
    const uint8_t* written = state.written(from);
    if (state.compute != nullptr && std::count(written, written + nbytes, 1) != static_cast<std::ptrdiff_t>(nbytes)) {
      state.problem("copy_out: of %zu bytes not all were written", nbytes);
    }
    std::memcpy(to, reinterpret_cast<const void*>(from), nbytes);
  });
}

HT_NULL_API Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t nbytes, Stream stream) {
  HT_NULL_CALL("cuMemcpyDtoDAsync_v2");
  if (!call.state.inside("copy", from, nbytes)) return kInvalidValue;
  State& state = call.state;
  return fill("copy", to, nbytes, stream, [=, &state] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), nbytes);
    std::memcpy(state.written(to), state.written(from), nbytes);
  });
}

HT_NULL_API Result cuMemsetD8Async(Pointer to, unsigned char value, size_t count, Stream stream) {
  HT_NULL_CALL("cuMemsetD8Async");
  return fill("fill", to, count, stream, [=] { set_all(to, value, count); });
}

HT_NULL_API Result cuMemsetD16Async(Pointer to, unsigned short value, size_t count, Stream stream) {
  HT_NULL_CALL("cuMemsetD16Async");
  return fill("fill", to, 2 * count, stream, [=] { set_all(to, value, count); });
}

HT_NULL_API Result cuMemsetD32Async(Pointer to, unsigned value, size_t count, Stream stream) {
  HT_NULL_CALL("cuMemsetD32Async");
  return fill("fill", to, 4 * count, stream, [=] { set_all(to, value, count); });
}

HT_NULL_API Result cuMemsetD2D32Async(Pointer to, size_t pitch, unsigned value, size_t width, size_t height,
                                      Stream stream) {
  HT_NULL_CALL("cuMemsetD2D32Async");
  if (width == 0 || height == 0 || pitch % 4 != 0) return kInvalidValue;
  return fill("fill", to, (height - 1) * pitch + 4 * width, stream, [=] {
    for (size_t row = 0; row < height; ++row) set_all(to + row * pitch, value, width);
  });
}

HT_NULL_API Result cuStreamCreate(Stream* stream, unsigned) {
  HT_NULL_CALL("cuStreamCreate", true, false);
  auto* made = new StreamState();
  call.state.streams.insert(made);
  *stream = reinterpret_cast<Stream>(made);
  return kSuccess;
}

HT_NULL_API Result cuStreamDestroy_v2(Stream stream) {
  HT_NULL_CALL("cuStreamDestroy_v2");
  if (call.state.streams.erase(stream) == 0)
    return call.state.problem("an unknown stream is destroyed"), kInvalidHandle;
  delete reinterpret_cast<StreamState*>(stream);
  return kSuccess;
}

HT_NULL_API Result cuStreamSynchronize(Stream stream) {
  HT_NULL_CALL("cuStreamSynchronize", true, false);
  call.state.note("synchronize");
  call.state.finish();
  const bool known = stream_of(call.state, stream) != nullptr || reinterpret_cast<uintptr_t>(stream) <= 2;
  return known ? kSuccess : (call.state.problem("an unknown stream is waited for"), kInvalidHandle);
}

HT_NULL_API Result cuStreamWaitEvent(Stream, Event, unsigned) {
  HT_NULL_CALL("cuStreamWaitEvent");
  call.state.note("wait for an event");
  return kSuccess;
}

HT_NULL_API Result cuEventCreate(Event* event, unsigned) {
  HT_NULL_CALL("cuEventCreate");
  *event = reinterpret_cast<Event>(new char());
  call.state.events.insert(*event);
  return kSuccess;
}

HT_NULL_API Result cuEventDestroy_v2(Event event) {
  HT_NULL_CALL("cuEventDestroy_v2");
  if (call.state.events.erase(event) == 0) return kInvalidHandle;
  delete reinterpret_cast<char*>(event);
  return kSuccess;
}

HT_NULL_API Result cuEventRecord(Event, Stream) {
  HT_NULL_CALL("cuEventRecord");
  return kSuccess;
}

HT_NULL_API Result cuEventSynchronize(Event) {
  HT_NULL_CALL("cuEventSynchronize", true, false);
  return kSuccess;
}

HT_NULL_API Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** params, void**) {
  HT_NULL_CALL("cuLaunchKernelEx");
  const auto* f = reinterpret_cast<const FunctionState*>(function);
  if (!call.state.check_launch(*f, *config, params)) return kInvalidValue;
  Launch launch = {f, {}, {config->grid[0], config->grid[1], config->grid[2]}};
  for (size_t i = 0; i < f->params.size(); ++i) {
    const char* from = static_cast<const char*>(params[i]);
    launch.params.emplace_back(from, from + f->params[i].nbytes);
  }
  call.state.note("launch %s grid %ux%ux%u block %u shared %u", f->name.c_str(), config->grid[0], config->grid[1],
                  config->grid[2], config->block[0], config->shared_nbytes);
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    call.state.note("with attribute %d = %d", config->attributes[i].id, config->attributes[i].number);
  }
  State& state = call.state;
  return enqueue(state, "launch", config->stream, [launch, &state] { state.run(launch); });
}

HT_NULL_API Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  HT_NULL_CALL("cuStreamBeginCapture_v2", true, false);
  StreamState* known = stream_of(call.state, stream);
  if (known == nullptr) return call.state.problem("capture on a stream that cannot be captured"), kCaptureUnsupported;
  if (mode != kCaptureThreadLocal) call.state.problem("capture of other threads' work");
  known->recording = new std::vector<std::function<void()>>();
  capturing = stream;
  call.state.note("capture");
  return kSuccess;
}

// A capture ends here whatever happens, as with the real driver; one that failed gives no graph.
HT_NULL_API Result cuStreamEndCapture(Stream stream, Graph* graph) {
  const Call call("cuStreamEndCapture");
  StreamState* known = stream_of(call.state, stream);
  if (known == nullptr || known->recording == nullptr) return kInvalidValue;
  const std::unique_ptr<std::vector<std::function<void()>>> recorded(std::exchange(known->recording, nullptr));
  capturing = nullptr;
  if (call.error != 0) return call.error;
  auto* made = new GraphState{std::move(*recorded)};
  call.state.graphs.insert(made);
  *graph = reinterpret_cast<Graph>(made);
  return kSuccess;
}

HT_NULL_API Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  HT_NULL_CALL("cuGraphInstantiateWithFlags", true, false);
  auto* made = new GraphState(*reinterpret_cast<GraphState*>(graph));
  call.state.execs.insert(made);
  *exec = reinterpret_cast<GraphExec>(made);
  return kSuccess;
}

HT_NULL_API Result cuGraphLaunch(GraphExec exec, Stream stream) {
  HT_NULL_CALL("cuGraphLaunch");
  const auto* graph = reinterpret_cast<const GraphState*>(exec);
  call.state.note("graph of %zu", graph->nodes.size());
  return enqueue(call.state, "graph", stream, [graph] {
    for (const auto& node : graph->nodes) node();
  });
}

HT_NULL_API Result cuGraphExecDestroy(GraphExec exec) {
  HT_NULL_CALL("cuGraphExecDestroy");
  if (call.state.execs.erase(exec) == 0) return kInvalidHandle;
  delete reinterpret_cast<GraphState*>(exec);
  return kSuccess;
}

HT_NULL_API Result cuGraphDestroy(Graph graph) {
  HT_NULL_CALL("cuGraphDestroy");
  if (call.state.graphs.erase(graph) == 0) return kInvalidHandle;
  delete reinterpret_cast<GraphState*>(graph);
  return kSuccess;
}

HT_NULL_API Result cuTensorMapEncodeTiled(hardtack::rt::cuda::TensorMap* map, int, unsigned rank, void* base,
                                          const uint64_t* sizes, const uint64_t* strides, const unsigned* block,
                                          const unsigned*, int, int swizzle, int, int) {
  HT_NULL_CALL("cuTensorMapEncodeTiled");
  const uint64_t address = reinterpret_cast<uint64_t>(base);
  if (rank < 1 || rank > 5 || address % 16 != 0 || !call.state.inside("tensor map", address, 1)) return kInvalidValue;
  for (unsigned d = 0; d + 1 < rank; ++d) {
    if (strides[d] % 16 != 0) return kInvalidValue;
  }
  call.state.note("map rank %u first size %llu block %u swizzle %d", rank, (unsigned long long)sizes[0], block[0],
                  swizzle);
  map->opaque[0] = address;
  return kSuccess;
}
