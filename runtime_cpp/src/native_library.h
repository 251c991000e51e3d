// A CPU target's shared object, loaded from memory: no file is written.
#pragma once

#include <hardtack/kernel_abi.h>

#include <memory>
#include <string_view>

#include "library_check.h"
#include "status.h"

namespace hardtack::rt {

class NativeLibrary {
 public:
  /// Checks the ELF file's form, maps it executable and checks its kernel table, running nothing of it.
  static Status load(std::string_view data, const char* name, std::unique_ptr<NativeLibrary>* library);
  ~NativeLibrary();
  NativeLibrary(const NativeLibrary&) = delete;
  NativeLibrary& operator=(const NativeLibrary&) = delete;

  /// Null when it has no kernel of that name.
  HtKernelFn find(std::string_view name) const;
  uint32_t num_kernels() const { return table_->count; }

 private:
  NativeLibrary() = default;
  Status open(std::string_view data, const char* name);
  Status check_table(const char* name) const;
  Status find_ranges(const char* name);
  bool holds(const void* at, uint64_t nbytes, bool code) const;
  bool holds_text(const char* text) const;

  std::vector<LoadedRange> ranges_;  // with the addresses of this process
  int fd_ = -1;
  void* handle_ = nullptr;
  const HtKernelTable* table_ = nullptr;
};

}  // namespace hardtack::rt
