#include "library_check.h"

#include <elf.h>

#include <cstring>
#include <map>
#include <string>

#include "checked.h"

namespace hardtack::rt {
namespace {

constexpr uint32_t kMaxSegments = 64;
constexpr uint64_t kMaxSpan = uint64_t{1} << 31;
constexpr uint64_t kPage = 4096;
constexpr uint32_t kGnuProperty = 0x6474E553;  // PT_GNU_PROPERTY, which older elf.h lack

std::string machine_text(int machine) {
  if (machine == 0) return "x86-64 or aarch64";
  if (machine == EM_X86_64) return "x86-64";
  return machine == EM_AARCH64 ? "aarch64" : "ELF machine " + std::to_string(machine);
}

uint64_t first_page(const Elf64_Phdr& s) { return s.p_vaddr & ~(s.p_align - 1); }
uint64_t last_page(const Elf64_Phdr& s) { return (s.p_vaddr + s.p_memsz + s.p_align - 1) & ~(s.p_align - 1); }

// The tags that libraries of the compilers we support have, with the bits that a value may have.
bool known_tag(int64_t tag, uint64_t* allowed) {
  *allowed = UINT64_MAX;
  switch (tag) {
    case DT_FLAGS: return *allowed = DF_BIND_NOW, true;
    case DT_FLAGS_1: return *allowed = DF_1_NOW, true;
    case DT_PLTGOT:
    case DT_STRTAB:
    case DT_SYMTAB:
    case DT_RELA:
    case DT_RELASZ:
    case DT_RELAENT:
    case DT_STRSZ:
    case DT_SYMENT:
    case DT_BIND_NOW:
    case DT_GNU_HASH:
    case DT_RELACOUNT: return true;
    default: return false;
  }
}

class Library {
 public:
  Library(std::string_view data, const char* name) : data_(data), name_(name) {}

  Status check(int machine) {
    HT_RETURN_IF_ERROR(check_header(machine));
    HT_RETURN_IF_ERROR(read_segments());
    HT_RETURN_IF_ERROR(check_loads());
    const Elf64_Phdr* dynamic = nullptr;
    int num_dynamics = 0, num_stacks = 0;
    for (const Elf64_Phdr& s : segments_) {
      HT_RETURN_IF_ERROR(check_segment(s));
      if (s.p_type == PT_DYNAMIC) dynamic = &s, ++num_dynamics;
      if (s.p_type == PT_GNU_STACK) ++num_stacks;
    }
    if (num_dynamics != 1) return error_of("it has %d segments PT_DYNAMIC, not one", num_dynamics);
    if (num_stacks != 1) return error_of("it has %d segments PT_GNU_STACK, not one", num_stacks);
    HT_RETURN_IF_ERROR(read_tags(*dynamic));
    HT_RETURN_IF_ERROR(check_symbols());
    return check_relocations(*dynamic);
  }

  void ranges(std::vector<LoadedRange>* out) const {
    for (const Elf64_Phdr& s : loads_) out->push_back({s.p_vaddr, s.p_memsz, (s.p_flags & PF_X) != 0});
  }

 private:
  template <typename T>
  bool read(uint64_t offset, T* out) const {
    if (!range_inside(offset, sizeof(T), data_.size())) return false;
    std::memcpy(out, data_.data() + offset, sizeof(T));
    return true;
  }

  Status bad(const char* why) const { return error(HT_BAD_BUNDLE, "library %s: %s", name_, why); }

  // Not inlined: the library would hold it once for each sentence.
  template <typename... Values>
  [[gnu::noinline]] Status error_of(const char* format, Values... values) const {
    return in_context(error(HT_BAD_BUNDLE, format, values...), std::string("library ") + name_);
  }

  Status check_header(int machine) {
    if (!read(0, &header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return bad("not an ELF file");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
        header_.e_ident[EI_VERSION] != EV_CURRENT) {
      return bad("not a 64-bit little-endian ELF file of version 1");
    }
    if (header_.e_type != ET_DYN) return bad("not a shared object");
    const bool known = header_.e_machine == EM_X86_64 || header_.e_machine == EM_AARCH64;
    if (!known || (machine != 0 && header_.e_machine != machine)) {
      return error(HT_BAD_BUNDLE, "library %s: it is for %s, expected %s", name_,
                   machine_text(header_.e_machine).c_str(), machine_text(machine).c_str());
    }
    if (header_.e_phentsize != sizeof(Elf64_Phdr)) return bad("its program headers have an unknown size");
    if (header_.e_phnum > kMaxSegments) {
      return error_of("it has %d program headers; at most %u are read", header_.e_phnum, kMaxSegments);
    }
    return Status();
  }

  Status read_segments() {
    if (!range_inside(header_.e_phoff, header_.e_phnum * sizeof(Elf64_Phdr), data_.size())) {
      return bad("its program headers lie outside the file");
    }
    for (uint32_t i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr s;
      static_cast<void>(read(header_.e_phoff + uint64_t{i} * sizeof s, &s));
      switch (s.p_type) {
        case PT_LOAD:
        case PT_DYNAMIC:
        case PT_NOTE:
        case PT_PHDR:
        case PT_GNU_EH_FRAME:
        case PT_GNU_STACK:
        case PT_GNU_RELRO:
        case kGnuProperty: break;
        default: return error_of("it has a segment of type 0x%x, which no library of a bundle has", s.p_type);
      }
      if (!range_inside(s.p_offset, s.p_filesz, data_.size())) return bad("a segment lies outside the file");
      // Far from overflow, whatever is added below.
      if (s.p_type != PT_LOAD && (s.p_vaddr > kMaxSpan || s.p_memsz > kMaxSpan)) {
        return bad("a segment lies outside of what is loaded");
      }
      segments_.push_back(s);
      if (s.p_type == PT_LOAD) loads_.push_back(s);
    }
    return Status();
  }

  // What is mapped: in order, on pages of its own, never writable and executable at once.
  Status check_loads() const {
    uint64_t before = 0;
    for (const Elf64_Phdr& s : loads_) {
      const bool aligned = s.p_align >= kPage && (s.p_align & (s.p_align - 1)) == 0 && s.p_align <= kMaxSpan;
      if (!aligned || (s.p_vaddr - s.p_offset) % s.p_align != 0 || s.p_filesz > s.p_memsz || s.p_memsz == 0) {
        return bad("a segment that is loaded has sizes or an alignment that make no sense");
      }
      if (!range_inside(s.p_vaddr, s.p_memsz, kMaxSpan)) return bad("a segment that is loaded ends beyond 2 GiB");
      if (first_page(s) < before) return bad("segments that are loaded overlap, or are out of order");
      if ((s.p_flags & PF_W) != 0 && (s.p_flags & PF_X) != 0) return bad("a segment is writable and executable");
      if ((s.p_flags & PF_R) == 0) return bad("a segment that is loaded cannot be read");
      before = last_page(s);
    }
    return loads_.empty() ? bad("nothing of it is loaded") : Status();
  }

  Status check_segment(const Elf64_Phdr& s) const {
    const uint64_t nbytes = s.p_filesz > s.p_memsz ? s.p_filesz : s.p_memsz;
    uint64_t at = 0;
    switch (s.p_type) {
      case PT_GNU_STACK: return (s.p_flags & PF_X) != 0 ? bad("it asks for an executable stack") : Status();
      case PT_GNU_RELRO:
        for (const Elf64_Phdr& load : loads_) {
          const bool inside = load.p_vaddr <= s.p_vaddr && s.p_vaddr + s.p_memsz <= last_page(load);
          if ((load.p_flags & PF_W) != 0 && inside) return Status();
        }
        return bad("what is to be made read-only lies outside of what is loaded");
      case PT_PHDR:
        HT_RETURN_IF_ERROR(place(s.p_vaddr, nbytes, "the segment of its program headers", &at));
        if (at == header_.e_phoff && s.p_memsz == header_.e_phnum * sizeof(Elf64_Phdr)) return Status();
        return bad("the segment of its program headers is elsewhere");
      case PT_GNU_EH_FRAME: return place(s.p_vaddr, nbytes, "a segment that is read", &at);
      case PT_NOTE:
      case kGnuProperty:
        HT_RETURN_IF_ERROR(place(s.p_vaddr, nbytes, "a segment that is read", &at));
        return s.p_filesz == s.p_memsz ? check_notes(at, s) : bad("a segment of notes has more in memory");
      default: return Status();
    }
  }

  // Each note of a segment ends in it: the linker goes from one to the next, and through the properties in them, by the
  // sizes that they say.
  Status check_notes(uint64_t start, const Elf64_Phdr& s) const {
    const uint64_t alignment = s.p_align == 8 ? 8 : 4;
    const auto aligned = [alignment](uint64_t n) { return (n + alignment - 1) & ~(alignment - 1); };
    for (uint64_t at = 0; at < s.p_filesz;) {
      Elf64_Nhdr note = {};
      if (!range_inside(at, sizeof note, s.p_filesz)) return bad("a note lies outside of its segment");
      static_cast<void>(read(start + at, &note));
      const uint64_t descriptor = aligned(at + sizeof note + note.n_namesz);
      if (!range_inside(descriptor, note.n_descsz, s.p_filesz)) return bad("a note lies outside of its segment");
      at = aligned(descriptor + note.n_descsz);
    }
    return Status();
  }

  // The segment that has all of some bytes in the file; null where there is none.
  const Elf64_Phdr* find(uint64_t address, uint64_t nbytes) const {
    for (const Elf64_Phdr& s : loads_) {
      if (s.p_vaddr <= address && range_inside(address - s.p_vaddr, nbytes, s.p_filesz)) return &s;
    }
    return nullptr;
  }

  // Where in the file bytes at an address lie: all of them in one segment that nothing writes to.
  Status place(uint64_t address, uint64_t nbytes, const char* what, uint64_t* at) const {
    const Elf64_Phdr* s = find(address, nbytes);
    if (s == nullptr || (s->p_flags & PF_W) != 0) {
      return error(HT_BAD_BUNDLE, "library %s: %s lies outside of what is loaded read-only", name_, what);
    }
    *at = s->p_offset + (address - s->p_vaddr);
    return Status();
  }

  // 0 where there is none.
  uint64_t tag(int64_t number) const {
    const auto found = tags_.find(number);
    return found == tags_.end() ? 0 : found->second;
  }

  // The dynamic section, read at its address, up to its end mark.
  Status read_tags(const Elf64_Phdr& dynamic) {
    const Elf64_Phdr* s = find(dynamic.p_vaddr, dynamic.p_filesz);
    if (s == nullptr || (s->p_flags & PF_W) == 0 || (dynamic.p_flags & PF_W) == 0 ||
        dynamic.p_memsz != dynamic.p_filesz) {
      return bad("its dynamic section lies outside of what is loaded writable");
    }
    const uint64_t start = s->p_offset + (dynamic.p_vaddr - s->p_vaddr);
    for (uint64_t at = 0; range_inside(at, sizeof(Elf64_Dyn), dynamic.p_filesz); at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry = {};
      static_cast<void>(read(start + at, &entry));
      if (entry.d_tag == DT_NULL) return check_tags();
      HT_RETURN_IF_ERROR(take_tag(entry.d_tag, entry.d_un.d_val));
    }
    return bad("its dynamic section does not end");
  }

  Status take_tag(int64_t tag, uint64_t value) {
    const auto number = static_cast<unsigned long long>(tag);
    uint64_t allowed = 0;
    if (!known_tag(tag, &allowed)) {
      return error_of("its dynamic section has the tag 0x%llx, which no library of a bundle has", number);
    }
    const bool right_size =
        (tag != DT_SYMENT || value == sizeof(Elf64_Sym)) && (tag != DT_RELAENT || value == sizeof(Elf64_Rela));
    if (!tags_.emplace(tag, value).second) return error_of("its dynamic section has the tag 0x%llx twice", number);
    if (right_size && (value & ~allowed) == 0) return Status();
    return error_of("its dynamic section has the tag 0x%llx with 0x%llx", number,
                    static_cast<unsigned long long>(value));
  }

  Status check_tags() const {
    for (const int64_t needed : {DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_GNU_HASH}) {
      if (tags_.count(needed) == 0) {
        return error_of("its dynamic section lacks the tag 0x%llx", static_cast<unsigned long long>(needed));
      }
    }
    return Status();
  }

  Status check_symbols() const {
    const uint64_t names_nbytes = tag(DT_STRSZ);
    uint64_t names = 0, count = 0, at = 0;
    HT_RETURN_IF_ERROR(place(tag(DT_STRTAB), names_nbytes, "its table of names", &names));
    if (names_nbytes == 0 || data_[names + names_nbytes - 1] != '\0') return bad("its table of names does not end");
    HT_RETURN_IF_ERROR(count_symbols(tag(DT_GNU_HASH), &count));
    HT_RETURN_IF_ERROR(place(tag(DT_SYMTAB), count * sizeof(Elf64_Sym), "its table of symbols", &at));
    for (uint64_t i = 1; i < count; ++i) {
      Elf64_Sym symbol;
      static_cast<void>(read(at + i * sizeof symbol, &symbol));
      const auto number = static_cast<unsigned long long>(i);
      const int type = ELF64_ST_TYPE(symbol.st_info), binding = ELF64_ST_BIND(symbol.st_info);
      if (symbol.st_name >= names_nbytes) {
        return error_of("the name of its symbol %llu lies outside of its table of names", number);
      }
      // Not STT_GNU_IFUNC among others: the linker would call such a function to learn its address. Of local symbols GNU's
      // ld for aarch64 writes one of a section, which nobody looks for.
      const bool of_section = type == STT_SECTION && binding == STB_LOCAL;
      if (!of_section && (type > STT_FUNC || (binding != STB_GLOBAL && binding != STB_WEAK))) {
        return error_of("its symbol %llu is of type %d and binding %d", number, type, binding);
      }
      if (symbol.st_shndx == SHN_UNDEF) return error_of("its symbol %llu is to be found elsewhere", number);
    }
    return Status();
  }

  // The number of symbols, as the hash table tells: chains lie one behind the other, the last one ends them.
  Status count_symbols(uint64_t address, uint64_t* count) const {
    constexpr const char* kWhat = "its hash table";
    uint32_t head[4] = {};  // buckets, first symbol, words of the filter, its shift
    uint64_t at = 0;
    HT_RETURN_IF_ERROR(place(address, sizeof head, kWhat, &at));
    static_cast<void>(read(at, &head));
    const uint64_t first = head[1];
    if (head[0] == 0 || head[2] == 0 || (head[2] & (head[2] - 1)) != 0 || head[3] > 31 || first == 0) {
      return bad("its hash table makes no sense");
    }
    const uint64_t before_buckets = sizeof head + uint64_t{8} * head[2];
    const uint64_t before_chains = before_buckets + uint64_t{4} * head[0];
    HT_RETURN_IF_ERROR(place(address, before_chains, kWhat, &at));
    uint64_t index = 0;
    for (uint32_t i = 0; i < head[0]; ++i) {
      uint32_t bucket = 0;
      static_cast<void>(read(at + before_buckets + uint64_t{4} * i, &bucket));
      if (bucket != 0 && bucket < first) return bad("its hash table makes no sense");
      if (bucket > index) index = bucket;
    }
    if (index == 0) return *count = first, Status();
    for (bool ended = false; !ended; ++index) {
      uint32_t hash = 0;
      HT_RETURN_IF_ERROR(place(address + before_chains + 4 * (index - first), 4, kWhat, &at));
      static_cast<void>(read(at, &hash));
      ended = (hash & 1) != 0;
    }
    return *count = index, Status();
  }

  // Each moves an address of the library, inside of what is writable, and not what the linker itself reads.
  Status check_relocations(const Elf64_Phdr& dynamic) const {
    const uint64_t nbytes = tag(DT_RELASZ), relative_count = tag(DT_RELACOUNT);
    if (tags_.count(DT_RELA) + tags_.count(DT_RELASZ) == 0) return Status();
    const bool whole = tags_.count(DT_RELA) + tags_.count(DT_RELASZ) + tags_.count(DT_RELAENT) == 3;
    if (!whole || nbytes % sizeof(Elf64_Rela) != 0) return bad("its table of relocations makes no sense");
    uint64_t at = 0;
    HT_RETURN_IF_ERROR(place(tag(DT_RELA), nbytes, "its table of relocations", &at));
    if (tags_.count(DT_RELACOUNT) != 0 && relative_count > nbytes / sizeof(Elf64_Rela)) {
      return bad("its table of relocations makes no sense");
    }
    const uint64_t relative = header_.e_machine == EM_X86_64 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE;
    for (uint64_t i = 0; i < nbytes / sizeof(Elf64_Rela); ++i) {
      Elf64_Rela r;
      static_cast<void>(read(at + i * sizeof r, &r));
      const auto number = static_cast<unsigned long long>(i);
      if (r.r_info != relative) {
        return error_of("its relocation %llu is of type %u and of symbol %u", number,
                        static_cast<unsigned>(ELF64_R_TYPE(r.r_info)), static_cast<unsigned>(ELF64_R_SYM(r.r_info)));
      }
      if (!writable(r.r_offset) || ranges_overlap(r.r_offset, 8, dynamic.p_vaddr, dynamic.p_memsz)) {
        return error_of("its relocation %llu writes to address 0x%llx", number,
                        static_cast<unsigned long long>(r.r_offset));
      }
    }
    return Status();
  }

  bool writable(uint64_t address) const {
    for (const Elf64_Phdr& s : loads_) {
      const bool inside = s.p_vaddr <= address && range_inside(address - s.p_vaddr, 8, s.p_memsz);
      if (inside && (s.p_flags & PF_W) != 0) return true;
    }
    return false;
  }

  std::string_view data_;
  const char* name_;
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_, loads_;
  std::map<int64_t, uint64_t> tags_;
};

}  // namespace

Status check_library(std::string_view data, const char* name, int machine, std::vector<LoadedRange>* ranges) {
  Library library(data, name);
  HT_RETURN_IF_ERROR(library.check(machine));
  if (ranges != nullptr) library.ranges(ranges);
  return Status();
}

}  // namespace hardtack::rt
