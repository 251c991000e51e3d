// Runs kernels of one library in a process of their own, which may be an emulated one: tests/support/emulated_kernels.py starts it and
// says what to run. Calls come on the standard input and are answered on the standard output, until the input ends.
//
//   call:   u32 length, name; u32 regions, each: u64 nbytes, u64 address there, bytes;
//           u32 buffers, each: i64 region (-1: null), u64 offset; u32 integers, each: i64; u32 workers;
//           shared workspace and workers' workspace, each as a buffer; i64 stride of the latter
//   answer: i32 status of the kernel, then the bytes of every region
//
// Numbers are little-endian. Behind each region lies a page that cannot be read; it starts where it started over there, modulo 64.
#include <dlfcn.h>
#include <hardtack/kernel_abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, const char* more) {
  std::fprintf(stderr, "kernel_runner: %s %s\n", what, more);
  std::exit(2);
}

void read_bytes(void* to, size_t nbytes) {
  if (std::fread(to, 1, nbytes, stdin) != nbytes) fail("the call ends early", "");
}

template <typename T>
T read() {
  T value;
  read_bytes(&value, sizeof value);
  return value;
}

// Bytes that end where their page does, nearly: at most 63 bytes lie between them and the page that cannot be read.
class Region {
 public:
  Region(size_t nbytes, uint64_t address) : nbytes_(nbytes) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (nbytes + 64 + page - 1) / page * page + page;
    void* memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for", "a region");
    base_ = static_cast<char*>(memory);
    char* const end = base_ + mapped_ - page;
    if (::mprotect(end, page, PROT_NONE) != 0) fail("no guard for", "a region");
    data_ = end - nbytes;
    data_ -= (reinterpret_cast<uintptr_t>(data_) - address) % 64;
  }
  Region(Region&& other) noexcept
      : base_(other.base_), data_(other.data_), nbytes_(other.nbytes_), mapped_(other.mapped_) {
    other.base_ = nullptr;
  }
  ~Region() {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  char* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  char* base_ = nullptr;
  char* data_ = nullptr;
  size_t nbytes_ = 0;
  size_t mapped_ = 0;
};

using Task = void (*)(void* closure, int64_t index, int32_t worker);

// Worker w takes every nworkers-th task, from the last to the first: an order that no kernel may rely on.
void run(void* pool, int64_t ntasks, Task task, void* closure) {
  const int64_t nworkers = *static_cast<int32_t*>(pool);
  if (nworkers == 1) {
    for (int64_t i = 0; i < ntasks; ++i) task(closure, i, 0);
    return;
  }
  std::vector<std::thread> threads;
  for (int32_t worker = 0; worker < nworkers; ++worker) {
    threads.emplace_back([=] {
      if (worker >= ntasks) return;
      for (int64_t i = worker + (ntasks - 1 - worker) / nworkers * nworkers; i >= 0; i -= nworkers)
        task(closure, i, worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

HtKernelFn find(const HtKernelTable& table, const std::string& name) {
  for (uint32_t i = 0; i < table.count; ++i) {
    if (name == table.entries[i].name) return table.entries[i].fn;
  }
  fail("there is no kernel", name.c_str());
}

void* read_pointer(const std::vector<Region>& regions) {
  const auto region = read<int64_t>();
  const auto offset = read<uint64_t>();
  return region < 0 ? nullptr : regions[static_cast<size_t>(region)].data() + offset;
}

void answer(const HtKernelTable& table, uint32_t length) {
  std::string name(length, '\0');
  read_bytes(name.data(), length);
  std::vector<Region> regions;
  for (auto left = read<uint32_t>(); left > 0; --left) {
    const auto nbytes = read<uint64_t>();
    regions.emplace_back(nbytes, read<uint64_t>());
    read_bytes(regions.back().data(), nbytes);
  }
  std::vector<void*> buffers(read<uint32_t>());
  for (void*& buffer : buffers) buffer = read_pointer(regions);
  std::vector<int64_t> ints(read<uint32_t>());
  for (int64_t& value : ints) value = read<int64_t>();
  auto nworkers = read<int32_t>();
  const HtParallel parallel = {&nworkers, run, nworkers};
  HtKernelArgs args = {buffers.data(), ints.data(), &parallel, nullptr, nullptr, 0};
  args.shared_workspace = read_pointer(regions);
  args.worker_workspace = read_pointer(regions);
  args.worker_stride = read<int64_t>();

  const int32_t status = find(table, name)(&args);
  std::fwrite(&status, sizeof status, 1, stdout);
  for (const Region& region : regions) std::fwrite(region.data(), 1, region.nbytes(), stdout);
  if (std::fflush(stdout) != 0) fail("nobody reads", "the answer");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail("usage: kernel_runner", "LIBRARY");
  void* library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail("cannot load", ::dlerror());
  const auto* table = static_cast<const HtKernelTable*>(::dlsym(library, "hardtack_kernels"));
  if (table == nullptr) fail("there is no hardtack_kernels in", argv[1]);
  uint32_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) answer(*table, length);
  return 0;
}
