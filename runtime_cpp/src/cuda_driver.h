// The CUDA driver, opened at run time: no header and no library of CUDA is needed to build. What is declared here is the
// part of the driver's ABI that the runtime uses; it has been stable since CUDA 12.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "status.h"

namespace hardtack::rt::cuda {

using Result = int;
using DeviceId = int;
using Pointer = uint64_t;  // CUdeviceptr
inline Pointer address(const void* pointer) { return reinterpret_cast<Pointer>(pointer); }
// NOLINTNEXTLINE(performance-no-int-to-ptr): to the driver addresses are integers
inline void* pointer(Pointer at) { return reinterpret_cast<void*>(at); }
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;
constexpr Result kNoDevice = 100;

constexpr int kDeviceComputeCapabilityMajor = 75;
constexpr int kDeviceComputeCapabilityMinor = 76;
constexpr int kDeviceMaxSharedOptin = 97;
constexpr int kFunctionSharedNbytes = 1;
constexpr int kFunctionMaxDynamicShared = 8;
constexpr int kFunctionNonPortableCluster = 14;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;
constexpr int kLaunchCluster = 4;
constexpr int kLaunchClusterPolicy = 5;
constexpr int kLaunchProgrammatic = 6;
constexpr int kClusterPolicySpread = 1;

struct LaunchAttribute {
  int id;
  int padding;
  union {
    unsigned cluster[3];
    int number;
    char room[64];
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_nbytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

// name in this table, symbol of the driver, parameters; the optional ones came after CUDA 12.0 or need new hardware.
// clang-format off
#define HT_CUDA_FUNCTIONS(required, optional) \
  required(init, cuInit, (unsigned flags)) \
  required(driver_version, cuDriverGetVersion, (int* version)) \
  required(error_name, cuGetErrorName, (Result result, const char** text)) \
  required(error_text, cuGetErrorString, (Result result, const char** text)) \
  required(device_count, cuDeviceGetCount, (int* count)) \
  required(device_get, cuDeviceGet, (DeviceId* device, int ordinal)) \
  required(device_name, cuDeviceGetName, (char* name, int nbytes, DeviceId device)) \
  required(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, DeviceId device)) \
  required(context_retain, cuDevicePrimaryCtxRetain, (Context* context, DeviceId device)) \
  required(context_release, cuDevicePrimaryCtxRelease_v2, (DeviceId device)) \
  required(context_push, cuCtxPushCurrent_v2, (Context context)) \
  required(context_pop, cuCtxPopCurrent_v2, (Context* context)) \
  required(context_current, cuCtxGetCurrent, (Context* context)) \
  required(module_load, cuModuleLoadData, (Module* module, const void* image)) \
  required(module_unload, cuModuleUnload, (Module module)) \
  required(module_function, cuModuleGetFunction, (Function* function, Module module, const char* name)) \
  required(function_set, cuFuncSetAttribute, (Function function, int attribute, int value)) \
  required(function_get, cuFuncGetAttribute, (int* value, int attribute, Function function)) \
  required(allocate, cuMemAlloc_v2, (Pointer* memory, size_t nbytes)) \
  required(release, cuMemFree_v2, (Pointer memory)) \
  required(allocate_host, cuMemAllocHost_v2, (void** memory, size_t nbytes)) \
  required(release_host, cuMemFreeHost, (void* memory)) \
  required(copy_in, cuMemcpyHtoDAsync_v2, (Pointer to, const void* from, size_t nbytes, Stream stream)) \
  required(copy_out, cuMemcpyDtoHAsync_v2, (void* to, Pointer from, size_t nbytes, Stream stream)) \
  required(copy, cuMemcpyDtoDAsync_v2, (Pointer to, Pointer from, size_t nbytes, Stream stream)) \
  required(fill8, cuMemsetD8Async, (Pointer to, unsigned char value, size_t count, Stream stream)) \
  required(fill16, cuMemsetD16Async, (Pointer to, unsigned short value, size_t count, Stream stream)) \
  required(fill32, cuMemsetD32Async, (Pointer to, unsigned value, size_t count, Stream stream)) \
  required(fill2d32, cuMemsetD2D32Async, (Pointer to, size_t pitch, unsigned value, size_t width, size_t height, \
           Stream stream)) \
  required(stream_create, cuStreamCreate, (Stream* stream, unsigned flags)) \
  required(stream_destroy, cuStreamDestroy_v2, (Stream stream)) \
  required(stream_synchronize, cuStreamSynchronize, (Stream stream)) \
  required(stream_wait, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags)) \
  required(event_create, cuEventCreate, (Event* event, unsigned flags)) \
  required(event_destroy, cuEventDestroy_v2, (Event event)) \
  required(event_record, cuEventRecord, (Event event, Stream stream)) \
  required(event_synchronize, cuEventSynchronize, (Event event)) \
  required(launch, cuLaunchKernelEx, (const LaunchConfig* config, Function function, void** params, void** extra)) \
  required(capture_begin, cuStreamBeginCapture_v2, (Stream stream, int mode)) \
  required(capture_end, cuStreamEndCapture, (Stream stream, Graph* graph)) \
  required(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec* exec, Graph graph, unsigned long long flags)) \
  required(graph_launch, cuGraphLaunch, (GraphExec exec, Stream stream)) \
  required(graph_exec_destroy, cuGraphExecDestroy, (GraphExec exec)) \
  required(graph_destroy, cuGraphDestroy, (Graph graph)) \
  optional(function_param, cuFuncGetParamInfo, (Function function, size_t index, size_t* offset, size_t* nbytes)) \
  optional(encode_map, cuTensorMapEncodeTiled, (TensorMap* map, int type, unsigned rank, void* base, \
           const uint64_t* sizes, const uint64_t* strides, const unsigned* block, const unsigned* element_strides, \
           int interleave, int swizzle, int promotion, int out_of_bounds))
// clang-format on

/// The driver's functions. Opened once for each path and never closed: the driver cannot be unloaded.
class Driver {
 public:
  /// `path` null: libcuda.so.1. HT_NO_TARGET where it cannot be opened or finds no device.
  static Status open(const char* path, const Driver** driver);

// NOLINTNEXTLINE(bugprone-macro-parentheses): names and parameter lists, not values
#define HT_CUDA_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  HT_CUDA_FUNCTIONS(HT_CUDA_MEMBER, HT_CUDA_MEMBER)
#undef HT_CUDA_MEMBER

  int version = 0;  // 12080: CUDA 12.8

  /// Ok for kSuccess; otherwise HT_DEVICE (HT_OUT_OF_MEMORY where memory ran out) with `what` that was attempted and the
  /// driver's name and text of the error, and whether the whole process has lost the device.
  Status check(Result result, const char* what) const { return result == kSuccess ? Status() : failure(result, what); }
  Status failure(Result result, const char* what) const;

 private:
  Status resolve(const char* path);
};

/// What a machine has to run kernels on.
struct Properties {
  DeviceId id = 0;
  int ordinal = 0;
  int arch = 0;  // 90: sm_90
  int max_shared_nbytes = 0;
  std::string name;
};

/// Device number `ordinal`; HT_NO_TARGET when there is none of that number.
Status read_properties(const Driver& driver, int ordinal, Properties* properties);

}  // namespace hardtack::rt::cuda
