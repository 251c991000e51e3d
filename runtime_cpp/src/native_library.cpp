#include "native_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "checked.h"
#include "cpu_features.h"

namespace hardtack::rt {
namespace {

constexpr const char* kTableSymbol = "hardtack_kernels";
constexpr uint64_t kMaxNameNbytes = 1024;

Status write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return error(HT_IO, "cannot fill the library's memory: %s", std::strerror(errno));
    data.remove_prefix(static_cast<size_t>(written));
  }
  return Status();
}

}  // namespace

Status NativeLibrary::load(std::string_view data, const char* name, std::unique_ptr<NativeLibrary>* library) {
  std::unique_ptr<NativeLibrary> opened(new NativeLibrary());
  HT_RETURN_IF_ERROR(check_library(data, name, native_elf_machine(), &opened->ranges_));
  HT_RETURN_IF_ERROR(opened->open(data, name));
  HT_RETURN_IF_ERROR(opened->find_ranges(name));
  HT_RETURN_IF_ERROR(opened->check_table(name));
  *library = std::move(opened);
  return Status();
}

NativeLibrary::~NativeLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
  if (fd_ >= 0) ::close(fd_);
}

// The descriptor stays open: the dynamic linker knows libraries by the path they were opened with, so a second library
// under the same /proc/self/fd number would be taken for the first.
Status NativeLibrary::open(std::string_view data, const char* name) {
  fd_ = ::memfd_create("hardtack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) return error(HT_IO, "memfd_create for library %s: %s", name, std::strerror(errno));
  HT_RETURN_IF_ERROR(write_all(fd_, data));
  if (::fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return error(HT_IO, "cannot seal library %s: %s", name, std::strerror(errno));
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd_);
  handle_ = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* why = ::dlerror();
    return error(HT_IO, "cannot load library %s: %s", name, why == nullptr ? "unknown" : why);
  }
  table_ = static_cast<const HtKernelTable*>(::dlsym(handle_, kTableSymbol));
  if (table_ == nullptr) return error(HT_BAD_BUNDLE, "library %s: it exports no %s", name, kTableSymbol);
  return Status();
}

Status NativeLibrary::find_ranges(const char* name) {
  link_map* map = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) {
    return error(HT_IO, "cannot tell where library %s lies", name);
  }
  for (LoadedRange& range : ranges_) range.address += map->l_addr;
  return Status();
}

// Whether all of some bytes lie in the library; `code`: in what can be run of it.
bool NativeLibrary::holds(const void* at, uint64_t nbytes, bool code) const {
  const uint64_t address = reinterpret_cast<uintptr_t>(at);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const LoadedRange& range) {
    return (range.executable || !code) && range.address <= address &&
           range_inside(address - range.address, nbytes, range.nbytes);
  });
}

bool NativeLibrary::holds_text(const char* text) const {
  const uint64_t address = reinterpret_cast<uintptr_t>(text);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const LoadedRange& range) {
    if (range.address > address || address - range.address >= range.nbytes) return false;
    const size_t limit = std::min<uint64_t>(range.nbytes - (address - range.address), kMaxNameNbytes);
    return ::strnlen(text, limit) < limit;
  });
}

// What the library says of itself is followed no further than the library goes.
Status NativeLibrary::check_table(const char* name) const {
  if (!holds(table_, sizeof *table_, false))
    return error(HT_BAD_BUNDLE, "library %s: its %s lies elsewhere", name, kTableSymbol);
  if (table_->abi_version < HT_KERNEL_ABI_FIRST || table_->abi_version > HT_KERNEL_ABI_VERSION) {
    return error(HT_BAD_BUNDLE, "library %s: kernel ABI version %u, this version of Hardtack calls versions %u to %u",
                 name, table_->abi_version, HT_KERNEL_ABI_FIRST, HT_KERNEL_ABI_VERSION);
  }
  if (table_->count > 0 && !holds(table_->entries, uint64_t{table_->count} * sizeof(HtKernelEntry), false)) {
    return error(HT_BAD_BUNDLE, "library %s: its table of kernels lies elsewhere", name);
  }
  for (uint32_t i = 0; i < table_->count; ++i) {
    const HtKernelEntry& entry = table_->entries[i];
    if (!holds_text(entry.name) || !holds(reinterpret_cast<const void*>(entry.fn), 1, true)) {
      return error(HT_BAD_BUNDLE, "library %s: the name or the code of kernel %u lies elsewhere", name, i);
    }
    if (i > 0 && std::strcmp(table_->entries[i - 1].name, entry.name) >= 0) {
      return error(HT_BAD_BUNDLE, "library %s: kernel %s is out of order", name, entry.name);
    }
  }
  return Status();
}

HtKernelFn NativeLibrary::find(std::string_view name) const {
  uint32_t low = 0, high = table_->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const int order = name.compare(table_->entries[middle].name);
    if (order == 0) return table_->entries[middle].fn;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return nullptr;
}

}  // namespace hardtack::rt
