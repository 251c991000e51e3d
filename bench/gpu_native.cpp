// What a process pays on a GPU, without Python: see gpu_native.py, which builds and runs this.
//
//   gpu_native floor FILE       starts the driver, sends FILE to the device through two page-locked buffers
//   gpu_native first FILE.pkg   loads a bundle and runs it once on host inputs: ones
//   gpu_native host FILE.pkg    the host's time for a run without CUDA graphs, and for as many bare launches
//
// Each prints one JSON object.
#include <dlfcn.h>
#include <fcntl.h>
#include <hardtack/hardtack.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kChunk = size_t{8} << 20;
constexpr int kRuns = 200;
constexpr int kParameters = 8;  // as many as a kernel of a layer has
// A kernel that ends at once, in the driver's own language.
constexpr const char* kPtx =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f,"
    " .param .u64 g, .param .u64 h) { ret; }\n";

struct Attribute {
  int id, padding;
  int values[16];
};
struct Config {
  unsigned grid[3], block[3], shared_nbytes;
  void* stream;
  Attribute* attributes;
  unsigned num_attributes;
};

// The driver, by name: a call that fails ends the program.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) fail(::dlerror());
  }
  template <typename... Args>
  void call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    const int result = function == nullptr ? -1 : function(args...);
    if (result != 0) fail((std::string(name) + " gives " + std::to_string(result)).c_str());
  }
  template <typename F>
  F find(const char* name) const {
    return reinterpret_cast<F>(::dlsym(library_, name));
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "gpu_native: %s\n", what);
    std::exit(1);
  }

 private:
  void* library_;
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void check(ht_status* status) {
  if (status != nullptr) Driver::fail(ht_status_message(status));
}

void* open_context(const Driver& driver) {
  void* context = nullptr;
  driver.call("cuInit", 0U);
  driver.call("cuDevicePrimaryCtxRetain", &context, 0);
  driver.call("cuCtxPushCurrent_v2", context);
  return context;
}

// What nobody who starts a process with these weights gets around.
int floor(const char* path) {
  const Clock::time_point begin = Clock::now();
  const Driver driver;
  open_context(driver);
  const double start_ms = ms_since(begin);
  const Clock::time_point sent = Clock::now();
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  if (file < 0 || ::fstat(file, &facts) != 0) Driver::fail(path);
  const size_t nbytes = static_cast<size_t>(facts.st_size);
  const auto* bytes = static_cast<const uint8_t*>(::mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, file, 0));
  uint64_t device = 0;
  void* stream = nullptr;
  void* staging[2] = {};
  void* done[2] = {};
  driver.call("cuMemAlloc_v2", &device, nbytes);
  driver.call("cuStreamCreate", &stream, 1U);
  for (int k = 0; k < 2; ++k) {
    driver.call("cuMemAllocHost_v2", &staging[k], kChunk);
    driver.call("cuEventCreate", &done[k], 2U);
  }
  int turn = 0;
  for (size_t at = 0; at < nbytes; at += kChunk, turn = 1 - turn) {
    const size_t count = std::min(kChunk, nbytes - at);
    driver.call("cuEventSynchronize", done[turn]);
    std::memcpy(staging[turn], bytes + at, count);
    driver.call("cuMemcpyHtoDAsync_v2", device + at, static_cast<const void*>(staging[turn]), count, stream);
    driver.call("cuEventRecord", done[turn], stream);
  }
  driver.call("cuStreamSynchronize", stream);
  std::printf("{\"start_ms\": %.3f, \"upload_ms\": %.3f, \"nbytes\": %zu}\n", start_ms, ms_since(sent), nbytes);
  return 0;
}

struct Loaded {
  ht_model* model = nullptr;
  ht_session* session = nullptr;
  std::vector<ht_tensor> inputs, outputs;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<uint8_t>> bytes;
};

// Inputs of fixed shape, all bytes 1 in the lowest of each integer: valid token numbers, and true.
void load(const char* path, bool outputs_stay, Loaded* out) {
  ht_load_options options = ht_load_options_default();
  options.device = "cuda:0";
  check(ht_model_load(path, &options, &out->model));
  ht_session_options how = ht_session_options_default();
  if (outputs_stay) {
    how.asynchronous = 1;
    how.graphs = HT_GRAPHS_OFF;
    how.outputs = HT_OUTPUTS_ON_DEVICE;
  }
  check(ht_session_create(out->model, &how, &out->session));
  const ht_entry_info* entry = ht_model_entry(out->model, 0);
  for (size_t k = 0; k < entry->num_inputs; ++k) {
    const ht_tensor_info* info = ht_model_input(out->model, 0, k);
    size_t numel = 1;
    out->shapes.emplace_back();
    for (int32_t d = 0; d < info->ndim; ++d) {
      if (info->shape[d].lo != info->shape[d].hi) Driver::fail("inputs must have fixed sizes");
      out->shapes.back().push_back(info->shape[d].lo);
      numel *= static_cast<size_t>(info->shape[d].lo);
    }
    const size_t width = info->dtype.bits / 8U;
    out->bytes.emplace_back(numel * width, uint8_t{0});
    for (size_t n = 0; n < numel && info->dtype.code != 2 && info->dtype.code != 4; ++n) out->bytes.back()[n * width] = 1;
  }
  for (size_t k = 0; k < entry->num_inputs; ++k) {
    ht_tensor tensor{};
    tensor.data = out->bytes[k].data();
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(1);
    tensor.ndim = static_cast<int32_t>(out->shapes[k].size());
    tensor.dtype = ht_model_input(out->model, 0, k)->dtype;
    tensor.shape = out->shapes[k].data();
    if (outputs_stay) {
      void* memory = nullptr;
      check(ht_model_allocate(out->model, out->bytes[k].size(), &memory));
      tensor.data = memory;
      tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(2);
    }
    out->inputs.push_back(tensor);
  }
  out->outputs.assign(entry->num_outputs, ht_tensor{});
}

void run(Loaded* loaded) {
  check(ht_session_run(loaded->session, nullptr, loaded->inputs.data(), loaded->inputs.size(), loaded->outputs.data(),
                       loaded->outputs.size()));
}

int first(const char* path) {
  const Clock::time_point begin = Clock::now();
  Loaded loaded;
  load(path, false, &loaded);
  const double load_ms = ms_since(begin);
  const Clock::time_point loaded_at = Clock::now();
  run(&loaded);
  std::printf("{\"load_ms\": %.3f, \"run_ms\": %.3f, \"weights_nbytes\": %llu}\n", load_ms, ms_since(loaded_at),
              static_cast<unsigned long long>(ht_model_get_info(loaded.model)->weights_nbytes));
  std::fflush(stdout);
  std::_Exit(0);
}

int32_t count_launch(void* user, const ht_step* step) {
  *static_cast<int*>(user) += step->kernel != nullptr;
  return 0;
}

int host(const char* path) {
  Loaded loaded;
  load(path, true, &loaded);
  const Driver driver;
  open_context(driver);
  for (size_t k = 0; k < loaded.inputs.size(); ++k) {
    driver.call("cuMemcpyHtoD_v2", reinterpret_cast<uint64_t>(loaded.inputs[k].data),
                static_cast<const void*>(loaded.bytes[k].data()), loaded.bytes[k].size());
  }
  int launches = 0;
  check(ht_session_set_observer(loaded.session, count_launch, &launches));
  run(&loaded);
  check(ht_session_set_observer(loaded.session, nullptr, nullptr));
  void *module = nullptr, *function = nullptr;
  driver.call("cuModuleLoadData", &module, static_cast<const void*>(kPtx));
  driver.call("cuModuleGetFunction", &function, module, "nothing");
  const auto launch = driver.find<int (*)(const Config*, void*, void**, void**)>("cuLaunchKernelEx");
  Attribute attribute{6, 0, {1}};
  const Config config{{1, 1, 1}, {128, 1, 1}, 0, ht_session_stream(loaded.session), &attribute, 1};
  uint64_t values[kParameters] = {};
  void* parameters[kParameters];
  for (int k = 0; k < kParameters; ++k) parameters[k] = &values[k];
  std::vector<double> ours, bare;
  for (int k = 0; k < kRuns; ++k) {
    check(ht_session_synchronize(loaded.session));
    Clock::time_point begin = Clock::now();
    run(&loaded);
    ours.push_back(ms_since(begin));
    check(ht_session_synchronize(loaded.session));
    begin = Clock::now();
    for (int n = 0; n < launches; ++n) {
      if (launch(&config, function, parameters, nullptr) != 0) Driver::fail("cuLaunchKernelEx fails");
    }
    bare.push_back(ms_since(begin));
  }
  std::printf("{\"launches\": %d, \"run_us\": %.3f, \"bare_us\": %.3f}\n", launches, median(ours) * 1e3 / launches,
              median(bare) * 1e3 / launches);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc == 3 ? argv[1] : "";
  if (command == "floor") return floor(argv[2]);
  if (command == "first") return first(argv[2]);
  if (command == "host") return host(argv[2]);
  Driver::fail("use: gpu_native floor|first|host FILE");
}
