// A CUDA driver without a GPU, for tests: memory is host memory, copies and fills happen, kernels are only checked and
// recorded, or done by a function of the test (ht_null_compute). It knows which bytes were written since they were
// allocated. hardtack is given its path as `cuda_driver`.
//
// Settings, from the environment when the library is loaded or from ht_null_set:
//   HARDTACK_NULL_DEVICES  how many devices there are (1)
//   HARDTACK_NULL_ARCH     their architecture (90)
//   HARDTACK_NULL_FAIL     "cuMemAlloc_v2=2": calls of that function fail with that error; "cuMemAlloc_v2=2@3": the third
//                          call since this was set fails, and no other
//   HARDTACK_NULL_REPORT   "add_one:4:5:1": launches of add_one report code 1 as kernels do, through the status pointer
//                          and the site that are parameters 4 and 5
//   HARDTACK_NULL_STRICT   1: problems and leaks end the process with status 3 when it exits
#pragma once

#include <cstdarg>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_driver.h"

namespace null_driver {

using hardtack::rt::cuda::LaunchConfig;

struct Param {
  uint32_t offset = 0, nbytes = 0;
  bool pointer = false;
};

struct FunctionState {
  std::string name;
  std::vector<Param> params;
  int max_dynamic_shared = 48 * 1024;
  bool large_clusters = false;
};

struct ModuleState {
  std::map<std::string, FunctionState> functions;
};

/// Does what a launch does: the function's name, its parameters, how many they are, and its grid.
using Compute = void (*)(const char* function, const void* const* params, unsigned num_params, const unsigned* grid);

/// A launch as it was enqueued.
struct Launch {
  const FunctionState* function = nullptr;
  std::vector<std::vector<char>> params;
  unsigned grid[3] = {};
};

struct StreamState {
  std::vector<std::function<void()>>* recording = nullptr;  // between begin and end of a capture
};

struct GraphState {
  std::vector<std::function<void()>> nodes;
};

/// All that the driver knows. Every entry point holds the mutex.
class State {
 public:
  static State& get();

  std::mutex mutex;
  std::map<std::string, std::string> settings;
  std::map<uint64_t, size_t> memory;       // live allocations on the device
  std::map<uint64_t, size_t> host_memory;  // page-locked
  std::set<void*> streams, events, modules, graphs, execs;
  int retained = 0;
  std::vector<std::string> log, problems;
  Compute compute = nullptr;

  void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
  /// Something that a caller of the driver must not do.
  void problem(const char* format, ...) __attribute__((format(printf, 2, 3)));
  int number(const char* setting, int otherwise) const;
  /// The error that the settings want from this call of `function`, or 0.
  int injected(const char* function);
  int calls = 0;  // of the function that is to fail, since the settings changed

  uint64_t allocate(size_t nbytes);
  bool release(uint64_t address);
  /// Notes a problem unless the range lies in one live allocation.
  bool inside(const char* what, uint64_t address, size_t nbytes);
  /// The live allocation around an address, false without one.
  bool allocation(uint64_t address, uint64_t* start, size_t* nbytes) const;
  /// One byte for each byte of device memory: whether it was written since it was allocated.
  uint8_t* written(uint64_t address) const { return written_ + (address - heap_); }
  bool on_device(uint64_t address) const { return address >= heap_ && address < heap_ + kHeapNbytes; }

  bool check_launch(const FunctionState& function, const LaunchConfig& config, void* const* params);
  /// What the launch does to memory: what `compute` does, and the report that the settings ask for, when somebody waits
  /// for it.
  void run(const Launch& launch);
  /// Lets all launches end.
  void finish();

  std::string leaks() const;

 private:
  State();
  bool check_shape(const FunctionState& function, const LaunchConfig& config);

  std::vector<std::pair<int32_t*, int32_t>> reports_;  // of launches that nobody has waited for: where and what
  static constexpr size_t kHeapNbytes = size_t{1} << 36;
  uint64_t heap_ = 0, next_ = 0;
  uint8_t* written_ = nullptr;
};

/// The functions of a cubin with their parameters; false when it is none.
bool parse_cubin(const void* image, ModuleState* module);

}  // namespace null_driver
