#include "elf_check.h"

#include <elf.h>

#include <cstring>
#include <string>

#include "checked.h"
#include "manifest.h"

namespace hardtack::rt {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kOsAbiCuda13 = 0x41;
constexpr uint16_t kMachineAmd = 224;
constexpr uint32_t kGfx942 = 0x4C;
constexpr uint64_t kDescriptorNbytes = 64;
constexpr uint64_t kMaxNameNbytes = 1023;

// An ELF file of sections that holds code for a GPU.
class KernelCode {
 public:
  KernelCode(std::string_view data, const char* name) : data_(data), name_(name) {}

 protected:
  template <typename T>
  bool read(uint64_t offset, T* out) const {
    if (!range_inside(offset, sizeof(T), data_.size())) return false;
    std::memcpy(out, data_.data() + offset, sizeof(T));
    return true;
  }
  bool section(uint32_t i, Elf64_Shdr* out) const {
    return i < header_.e_shnum && header_.e_shoff <= data_.size() &&
           read(header_.e_shoff + uint64_t{i} * sizeof *out, out);
  }
  Status bad(const char* why) const { return error(HT_BAD_BUNDLE, "kernel code %s: %s", name_, why); }

  // HT_BAD_BUNDLE where one of `wanted` is not among `found`.
  Status check_found(const FunctionNames& wanted, const std::set<std::string_view>& found) const {
    for (const std::string& function : wanted) {
      if (found.count(function) > 0) continue;
      return error(HT_BAD_BUNDLE, "kernel code %s: it has no function %s", name_, function.c_str());
    }
    return Status();
  }

  // The text at a place in a section of names; "" for one that does not end, or not soon.
  std::string_view text(const Elf64_Shdr& names, uint64_t at) const {
    if (at >= names.sh_size || !range_inside(names.sh_offset, names.sh_size, data_.size())) return "";
    const uint64_t left = names.sh_size - at;
    const std::string_view rest =
        data_.substr(names.sh_offset + at, left < kMaxNameNbytes + 1 ? left : kMaxNameNbytes + 1);
    const size_t end = rest.find('\0');
    return end == std::string_view::npos ? "" : rest.substr(0, end);
  }

  Status check_header(uint16_t machine, const char* wrong_machine) {
    if (!read(0, &header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return bad("not an ELF file");
    if (header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_ident[EI_DATA] == ELFDATA2LSB &&
        header_.e_machine == machine) {
      return Status();
    }
    return bad(wrong_machine);
  }

  Status check_sections() const {
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) return bad("its section headers have an unknown size");
    for (uint32_t i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr each;
      if (!section(i, &each)) return bad("its section headers lie outside the file");
      if (each.sh_type != SHT_NOBITS && !range_inside(each.sh_offset, each.sh_size, data_.size())) {
        return bad("a section lies outside the file");
      }
    }
    return Status();
  }

  std::string_view data_;
  const char* name_;
  Elf64_Ehdr header_ = {};
};

class Cubin : public KernelCode {
 public:
  using KernelCode::KernelCode;

  Status check(int arch, const FunctionNames& functions) {
    HT_RETURN_IF_ERROR(check_header(kMachineCuda, "not CUDA code of 64 bits (ELF machine 190)"));
    // CUDA 13 moved the architecture's number.
    const uint32_t flags = header_.e_flags;
    const int found = static_cast<int>((header_.e_ident[EI_OSABI] == kOsAbiCuda13 ? flags >> 8 : flags) & 0xFF);
    if (found != arch) {
      return error(HT_BAD_BUNDLE, "kernel code %s: it is for sm_%d, its target is for sm_%d", name_, found, arch);
    }
    HT_RETURN_IF_ERROR(check_sections());
    return find(functions);
  }

 private:
  // A function is a section, called ".text." and its name.
  Status find(const FunctionNames& wanted) const {
    constexpr std::string_view kPrefix = ".text.";
    std::set<std::string_view> found;
    Elf64_Shdr names, each;
    for (uint32_t i = 0; section(header_.e_shstrndx, &names) && section(i, &each); ++i) {
      const std::string_view name = text(names, each.sh_name);
      if (name.substr(0, kPrefix.size()) != kPrefix) continue;
      const auto at = wanted.find(name.substr(kPrefix.size()));
      if (at != wanted.end()) found.insert(*at);
    }
    return check_found(wanted, found);
  }
};

// Code for an AMD GPU: a function is a symbol, its descriptor another one, called ".kd" behind its name.
class CodeObject : public KernelCode {
 public:
  using KernelCode::KernelCode;

  Status check(std::string_view arch, const FunctionNames& functions) {
    HT_RETURN_IF_ERROR(check_header(kMachineAmd, "not code for AMD GPUs of 64 bits (ELF machine 224)"));
    if (arch != "gfx942") {
      return error(HT_BAD_BUNDLE, "kernel code %s: its target is for %s; this Hardtack knows gfx942", name_,
                   std::string(arch).c_str());
    }
    const uint32_t found = header_.e_flags & 0xFF;
    if (found != kGfx942) {
      return error(HT_BAD_BUNDLE, "kernel code %s: it is for AMD processor 0x%x, its target is for gfx942 (0x%x)",
                   name_, found, kGfx942);
    }
    HT_RETURN_IF_ERROR(check_sections());
    return find(functions);
  }

 private:
  Status find(const FunctionNames& wanted) const {
    constexpr std::string_view kSuffix = ".kd";
    std::set<std::string_view> found;
    Elf64_Shdr symbols, names;
    int num_tables = 0;  // many that lie on one another would take more time than the file has bytes
    for (uint32_t i = 0; section(i, &symbols); ++i) {
      if (symbols.sh_type != SHT_DYNSYM) continue;
      if (++num_tables > 1) return bad("it has several tables of dynamic symbols");
      if (!section(symbols.sh_link, &names) || names.sh_type == SHT_NOBITS) continue;
      for (uint64_t at = 0; range_inside(at, sizeof(Elf64_Sym), symbols.sh_size); at += sizeof(Elf64_Sym)) {
        Elf64_Sym each;
        if (!read(symbols.sh_offset + at, &each)) break;
        if (each.st_shndx == SHN_UNDEF || each.st_size != kDescriptorNbytes) continue;
        const std::string_view name = text(names, each.st_name);
        if (name.size() < kSuffix.size() || name.substr(name.size() - kSuffix.size()) != kSuffix) continue;
        const auto known = wanted.find(name.substr(0, name.size() - kSuffix.size()));
        if (known != wanted.end()) found.insert(*known);
      }
    }
    return check_found(wanted, found);
  }
};

}  // namespace

Status check_kernel_code(std::string_view data, const char* name, const char* arch, const FunctionNames& functions) {
  int number = 0;
  if (parse_arch(arch, &number)) return Cubin(data, name).check(number, functions);
  return CodeObject(data, name).check(arch, functions);
}

}  // namespace hardtack::rt
