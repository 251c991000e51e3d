#include "state.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace null_driver {
namespace {

constexpr size_t kPage = 4096;
constexpr unsigned char kPoison = 0xCD;

std::string format_text(const char* format, va_list args) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, args);
  return text;
}

size_t pages(size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

// Addresses without memory.
void* reserved(size_t nbytes) {
  return ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void open(void* memory, size_t nbytes) { ::mprotect(memory, pages(nbytes), PROT_READ | PROT_WRITE); }

void close(void* memory, size_t nbytes) {
  ::mprotect(memory, pages(nbytes), PROT_NONE);
  ::madvise(memory, pages(nbytes), MADV_DONTNEED);
}

}  // namespace

// Never destroyed: other libraries may still call when the process ends.
State& State::get() {
  static State* state = new State();
  return *state;
}

// Addresses are never used twice, so that a stale pointer is always one.
State::State() {
  heap_ = next_ = reinterpret_cast<uint64_t>(reserved(kHeapNbytes));
  written_ = static_cast<uint8_t*>(reserved(kHeapNbytes));
  for (const char* name : {"HARDTACK_NULL_DEVICES", "HARDTACK_NULL_ARCH", "HARDTACK_NULL_FAIL", "HARDTACK_NULL_REPORT",
                           "HARDTACK_NULL_STRICT"}) {
    if (const char* value = std::getenv(name)) settings[name] = value;
  }
}

void State::note(const char* format, ...) {
  va_list args;
  va_start(args, format);
  log.push_back(format_text(format, args));
  va_end(args);
}

void State::problem(const char* format, ...) {
  va_list args;
  va_start(args, format);
  problems.push_back(format_text(format, args));
  va_end(args);
}

int State::number(const char* setting, int otherwise) const {
  const auto at = settings.find(setting);
  return at == settings.end() || at->second.empty() ? otherwise : std::atoi(at->second.c_str());
}

int State::injected(const char* function) {
  const auto at = settings.find("HARDTACK_NULL_FAIL");
  if (at == settings.end()) return 0;
  const size_t equals = at->second.find('=');
  if (equals == std::string::npos || at->second.substr(0, equals) != function) return 0;
  ++calls;
  const size_t number = at->second.find('@');
  if (number != std::string::npos && std::atoi(at->second.c_str() + number + 1) != calls) return 0;
  return std::atoi(at->second.c_str() + equals + 1);
}

uint64_t State::allocate(size_t nbytes) {
  const size_t size = pages(nbytes);
  if (next_ + size + kPage > heap_ + kHeapNbytes) return 0;
  const uint64_t address = next_;
  next_ += size + kPage;  // an unmapped page behind each
  open(reinterpret_cast<void*>(address), size);
  open(written(address), size);
  std::memset(reinterpret_cast<void*>(address), kPoison, nbytes);
  memory[address] = nbytes;
  return address;
}

bool State::release(uint64_t address) {
  const auto at = memory.find(address);
  if (at == memory.end()) return problem("free of 0x%llx, which is not allocated", (unsigned long long)address), false;
  close(reinterpret_cast<void*>(address), at->second);
  close(written(address), at->second);
  memory.erase(at);
  return true;
}

namespace {

bool lies_in(const std::map<uint64_t, size_t>& allocations, uint64_t address, size_t nbytes) {
  auto at = allocations.upper_bound(address);
  if (at == allocations.begin()) return false;
  --at;
  return address - at->first <= at->second && nbytes <= at->second - (address - at->first);
}

}  // namespace

bool State::allocation(uint64_t address, uint64_t* start, size_t* nbytes) const {
  auto at = memory.upper_bound(address);
  if (at == memory.begin()) return false;
  --at;
  *start = at->first;
  *nbytes = at->second;
  return address - at->first <= at->second;
}

bool State::inside(const char* what, uint64_t address, size_t nbytes) {
  if (lies_in(memory, address, nbytes)) return true;
  problem("%s: %zu bytes at 0x%llx lie outside what is allocated", what, nbytes, (unsigned long long)address);
  return false;
}

// The limits of compute capability 9.0.
bool State::check_shape(const FunctionState& f, const LaunchConfig& c) {
  const char* name = f.name.c_str();
  unsigned cluster = 1;
  for (unsigned i = 0; i < c.num_attributes; ++i) {
    if (c.attributes[i].id == hardtack::rt::cuda::kLaunchCluster) cluster = c.attributes[i].cluster[0];
  }
  if (c.grid[0] < 1 || c.grid[0] > 0x7FFFFFFF || c.grid[1] < 1 || c.grid[1] > 65535 || c.grid[2] < 1 ||
      c.grid[2] > 65535) {
    return problem("%s: a grid of %u x %u x %u", name, c.grid[0], c.grid[1], c.grid[2]), false;
  }
  const uint64_t threads = uint64_t{c.block[0]} * c.block[1] * c.block[2];
  if (threads < 1 || threads > 1024) return problem("%s: %llu threads", name, (unsigned long long)threads), false;
  if (c.shared_nbytes > static_cast<unsigned>(f.max_dynamic_shared)) {
    return problem("%s: %u bytes of shared memory, %d were asked for", name, c.shared_nbytes, f.max_dynamic_shared),
           false;
  }
  if (cluster > (f.large_clusters ? 16u : 8u) || c.grid[0] % cluster != 0) {
    return problem("%s: clusters of %u in a grid of %u", name, cluster, c.grid[0]), false;
  }
  return true;
}

bool State::check_launch(const FunctionState& f, const LaunchConfig& c, void* const* params) {
  if (!check_shape(f, c)) return false;
  for (size_t i = 0; i < f.params.size(); ++i) {
    if (!f.params[i].pointer) continue;
    uint64_t value = 0;
    std::memcpy(&value, params[i], sizeof value);
    if (value == 0) continue;
    if (value % 16 != 0) {
      return problem("%s: pointer %zu, 0x%llx, is not aligned to 16", f.name.c_str(), i, (unsigned long long)value),
             false;
    }
    if (!lies_in(host_memory, value, 0) && !inside(f.name.c_str(), value, 0)) return false;
  }
  return true;
}

void State::run(const Launch& launch) {
  const FunctionState& f = *launch.function;
  const std::vector<std::vector<char>>& params = launch.params;
  if (compute != nullptr) {
    std::vector<const void*> pointers;
    for (const std::vector<char>& param : params) pointers.push_back(param.data());
    compute(f.name.c_str(), pointers.data(), static_cast<unsigned>(pointers.size()), launch.grid);
  }
  const auto at = settings.find("HARDTACK_NULL_REPORT");
  char name[128] = {};
  unsigned status = 0, site = 0;
  int code = 0;
  if (at == settings.end() || std::sscanf(at->second.c_str(), "%127[^:]:%u:%u:%d", name, &status, &site, &code) != 4 ||
      f.name != name || status >= params.size() || site >= params.size()) {
    return;
  }
  int32_t* word = nullptr;
  int32_t number = 0;
  std::memcpy(&word, params[status].data(), sizeof word);
  std::memcpy(&number, params[site].data(), sizeof number);
  reports_.emplace_back(word, number << 8 | code);
}

void State::finish() {
  for (const auto& [word, report] : reports_) {
    if (*word == 0) *word = report;
  }
  reports_.clear();
}

std::string State::leaks() const {
  std::string out;
  const auto add = [&out](const char* what, size_t count) {
    if (count > 0) out += std::string(out.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add("allocations", memory.size());
  add("host allocations", host_memory.size());
  add("streams", streams.size());
  add("events", events.size());
  add("modules", modules.size());
  add("graphs", graphs.size());
  add("executable graphs", execs.size());
  add("retained contexts", static_cast<size_t>(retained));
  return out;
}

namespace {

constexpr uint8_t kFormatSized = 4, kAttributeParam = 0x17;
constexpr uint32_t kPointerBit = 0x400;

void parse_params(const char* data, size_t nbytes, FunctionState* function) {
  for (size_t at = 0; at + 4 <= nbytes;) {
    const uint8_t format = static_cast<uint8_t>(data[at]), attribute = static_cast<uint8_t>(data[at + 1]);
    uint16_t size = 0;
    std::memcpy(&size, data + at + 2, sizeof size);
    at += 4;
    if (format != kFormatSized) continue;
    if (attribute == kAttributeParam && size == 12 && at + 12 <= nbytes) {
      uint16_t ordinal = 0, offset = 0;
      uint32_t bits = 0;
      std::memcpy(&ordinal, data + at + 4, sizeof ordinal);
      std::memcpy(&offset, data + at + 6, sizeof offset);
      std::memcpy(&bits, data + at + 8, sizeof bits);
      if (function->params.size() <= ordinal) function->params.resize(ordinal + size_t{1});
      function->params[ordinal] = {offset, bits >> 18, (bits & kPointerBit) != 0};
    }
    at += size;
  }
}

struct AtExit {
  ~AtExit() {
    State& state = State::get();
    if (state.number("HARDTACK_NULL_STRICT", 0) == 0) return;
    const std::string leaks = state.leaks();
    for (const std::string& problem : state.problems) std::fprintf(stderr, "null driver: %s\n", problem.c_str());
    if (!leaks.empty()) std::fprintf(stderr, "null driver: left behind: %s\n", leaks.c_str());
    if (!leaks.empty() || !state.problems.empty()) ::_exit(3);
  }
} at_exit;

}  // namespace

bool parse_cubin(const void* image, ModuleState* module) {
  const char* data = static_cast<const char*>(image);
  Elf64_Ehdr header;
  std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != 190) return false;
  const auto section = [&](unsigned i) {
    Elf64_Shdr out;
    std::memcpy(&out, data + header.e_shoff + i * sizeof out, sizeof out);
    return out;
  };
  const char* names = data + section(header.e_shstrndx).sh_offset;
  const std::string code = ".text.", info = ".nv.info.";
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const std::string name = names + section(i).sh_name;
    if (name.compare(0, code.size(), code) == 0) {
      FunctionState& f = module->functions[name.substr(code.size())];
      f.name = name.substr(code.size());
    } else if (name.compare(0, info.size(), info) == 0) {
      parse_params(data + section(i).sh_offset, section(i).sh_size, &module->functions[name.substr(info.size())]);
    }
  }
  return true;
}

}  // namespace null_driver
