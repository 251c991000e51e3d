#include "zip.h"

#include <algorithm>
#include <cstring>

#include "checked.h"
#include "hash.h"

namespace hardtack::rt {
namespace {

constexpr uint64_t kMax32 = 0xFFFFFFFF;
constexpr uint64_t kMax16 = 0xFFFF;
constexpr size_t kEndNbytes = 22;
constexpr size_t kEnd64Nbytes = 56 + 20;
constexpr size_t kCentralNbytes = 46;
constexpr size_t kMaxCentralNbytes = kCentralNbytes + 2 * size_t{65535};
constexpr uint64_t kWindowNbytes = 256 * 1024;
constexpr uint64_t kMaxMembers = 1u << 20;
constexpr uint64_t kMaxExtra = 65535;
constexpr uint64_t kPadBlockHeader = 4;

void put(std::string* out, uint64_t value, int nbytes) {
  for (int i = 0; i < nbytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

uint64_t get(const char* p, int nbytes) {
  uint64_t value = 0;
  for (int i = 0; i < nbytes; ++i) value |= uint64_t{static_cast<uint8_t>(p[i])} << (8 * i);
  return value;
}

bool large_size(const Member& m) { return m.nbytes >= kMax32; }
bool large_offset(const Member& m) { return m.header_offset >= kMax32; }
uint64_t version_needed(const Member& m) { return large_size(m) || large_offset(m) ? 45 : 20; }

// From "version needed" or "flags" to the sizes, the same in both headers.
void put_common(std::string* out, const Member& m) {
  put(out, version_needed(m), 2);
  put(out, 0, 2);       // flags
  put(out, 0, 2);       // method: stored
  put(out, 0, 2);       // time 00:00
  put(out, 0x0021, 2);  // date 1980-01-01
  put(out, m.crc32, 4);
  put(out, std::min(m.nbytes, kMax32), 4);
  put(out, std::min(m.nbytes, kMax32), 4);
  put(out, m.name.size(), 2);
}

bool ends_with(const std::string& text, const char* end) {
  const size_t n = std::strlen(end);
  return text.size() >= n && text.compare(text.size() - n, n, end) == 0;
}

// The local header's length without the padding's zero bytes.
uint64_t header_without_padding(const Member& m) {
  return 30 + m.name.size() + (large_size(m) ? 20 : 0) + kPadBlockHeader;
}

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 255) return false;
  size_t start = 0;
  for (size_t i = 0; i <= name.size(); ++i) {
    if (i == name.size() || name[i] == '/') {
      const std::string part = name.substr(start, i - start);
      if (part.empty() || part == "." || part == "..") return false;
      start = i + 1;
      continue;
    }
    const char c = name[i];
    const bool allowed = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                         (c != '\0' && std::strchr("._-:", c) != nullptr);
    if (!allowed) return false;
  }
  return true;
}

struct Directory {
  uint64_t num_members = 0;
  uint64_t offset = 0;
  uint64_t nbytes = 0;
};

Status read_end(const Source& source, Directory* directory) {
  const uint64_t total = source.nbytes();
  if (total < kEndNbytes) return error(HT_BAD_BUNDLE, "too short for a bundle: %llu bytes", (unsigned long long)total);
  char end[kEndNbytes];
  HT_RETURN_IF_ERROR(source.read(total - kEndNbytes, kEndNbytes, end));
  if (std::memcmp(end, "PK\5\6", 4) != 0) {
    return error(HT_BAD_BUNDLE, "not a bundle: no ZIP end record in the last 22 bytes");
  }
  *directory = {get(end + 10, 2), get(end + 16, 4), get(end + 12, 4)};
  uint64_t end_nbytes = kEndNbytes;
  if (directory->num_members == kMax16 || directory->offset == kMax32 || directory->nbytes == kMax32) {
    char end64[kEnd64Nbytes];
    end_nbytes += kEnd64Nbytes;
    if (total < end_nbytes) return error(HT_BAD_BUNDLE, "the ZIP64 end record is missing");
    HT_RETURN_IF_ERROR(source.read(total - end_nbytes, kEnd64Nbytes, end64));
    *directory = {get(end64 + 32, 8), get(end64 + 48, 8), get(end64 + 40, 8)};
  }
  if (directory->num_members > kMaxMembers || directory->offset > total - end_nbytes ||
      directory->nbytes != total - end_nbytes - directory->offset ||
      directory->num_members > directory->nbytes / kCentralNbytes) {
    return error(HT_BAD_BUNDLE, "the central directory does not lie where the end record says");
  }
  std::string found(end_nbytes, '\0');
  HT_RETURN_IF_ERROR(source.read(total - end_nbytes, end_nbytes, found.data()));
  if (found != end_records(directory->num_members, directory->offset, directory->nbytes)) {
    return error(HT_BAD_BUNDLE, "the ZIP end records differ from the canonical form");
  }
  return Status();
}

// The central directory, a piece at a time: a file that says that it is large takes no more memory than it has.
class DirectoryText {
 public:
  DirectoryText(const Source& source, const Directory& directory)
      : source_(source), offset_(directory.offset), left_(directory.nbytes) {}

  const char* data() const { return window_.data() + at_; }
  size_t nbytes() const { return window_.size() - at_; }
  void skip(size_t nbytes) { at_ += nbytes; }

  // A whole central header at least, or all that is left.
  Status fill() {
    if (nbytes() >= kMaxCentralNbytes || left_ == 0) return Status();
    window_.erase(0, at_);
    at_ = 0;
    const size_t before = window_.size(), more = std::min<uint64_t>(left_, kWindowNbytes);
    window_.resize(before + more);
    HT_RETURN_IF_ERROR(source_.read(offset_, more, window_.data() + before));
    offset_ += more;
    left_ -= more;
    return Status();
  }

 private:
  const Source& source_;
  uint64_t offset_, left_;
  std::string window_;
  size_t at_ = 0;
};

// Reads the fields of the central header at `p` (`left` bytes) and checks that all others follow from them.
Status parse_central(const char* p, size_t left, uint64_t index, Member* m, size_t* used) {
  const auto bad = [&](const char* what) {
    return error(HT_BAD_BUNDLE, "member %llu: %s", static_cast<unsigned long long>(index), what);
  };
  if (left < kCentralNbytes) return bad("its central header is cut off");
  const size_t name_nbytes = get(p + 28, 2), extra_nbytes = get(p + 30, 2);
  if (left - kCentralNbytes < name_nbytes + extra_nbytes) return bad("its central header is cut off");
  m->crc32 = static_cast<uint32_t>(get(p + 16, 4));
  m->nbytes = get(p + 24, 4);
  m->header_offset = get(p + 42, 4);
  m->name.assign(p + kCentralNbytes, name_nbytes);
  const char* extra = p + kCentralNbytes + name_nbytes;
  size_t at = 4;
  if (m->nbytes == kMax32 && extra_nbytes >= at + 16) m->nbytes = get(extra + at, 8), at += 16;
  if (m->header_offset == kMax32 && extra_nbytes >= at + 8) m->header_offset = get(extra + at, 8);
  const std::string expected = central_header(*m);
  *used = kCentralNbytes + name_nbytes + extra_nbytes;
  if (expected.size() != *used || std::memcmp(expected.data(), p, *used) != 0) {
    return bad("its central header differs from the canonical form");
  }
  if (!good_name(m->name)) return bad("its name is not allowed");
  return Status();
}

// Members follow each other without gaps: `position` is where this one's local header must be.
Status check_place(const Source& source, const Member* previous, Member* m, uint64_t* position, uint64_t limit) {
  const char* name = m->name.c_str();
  const int group = member_group(m->name);
  if (group < 0) return error(HT_BAD_BUNDLE, "member %s: no member of this name belongs into a bundle", name);
  if (previous != nullptr) {
    const int before = member_group(previous->name);
    if (before > group || (before == group && previous->name >= m->name)) {
      return error(HT_BAD_BUNDLE, "member %s: out of order after %s", name, previous->name.c_str());
    }
  }
  if (m->header_offset != *position) return error(HT_BAD_BUNDLE, "member %s: a gap or overlap before it", name);
  if (!range_inside(m->header_offset, header_without_padding(*m) + kMaxExtra, UINT64_MAX / 2)) {
    return error(HT_BAD_BUNDLE, "member %s: its offset is too large", name);
  }
  m->data_offset = data_offset(*m);
  if (!range_inside(m->data_offset, m->nbytes, limit)) {
    return error(HT_BAD_BUNDLE, "member %s: its %llu bytes do not fit into the file", name,
                 static_cast<unsigned long long>(m->nbytes));
  }
  std::string found(m->data_offset - m->header_offset, '\0');
  HT_RETURN_IF_ERROR(source.read(m->header_offset, found.size(), found.data()));
  if (found != local_header(*m)) {
    return error(HT_BAD_BUNDLE, "member %s: its local header differs from the canonical form", name);
  }
  *position = m->data_offset + m->nbytes;
  return Status();
}

}  // namespace

int member_group(const std::string& name) {
  static constexpr const char* kPrefixes[] = {"plans/", "lib/", "kernels/", "debug/"};
  if (name == "manifest.json") return 0;
  for (int i = 0; i < 4; ++i) {
    if (name.compare(0, std::strlen(kPrefixes[i]), kPrefixes[i]) == 0) return i + 1;
  }
  return ends_with(name, ".safetensors") ? 5 : -1;
}

uint64_t data_offset(const Member& m) {
  const uint64_t start = m.header_offset + header_without_padding(m);
  const uint64_t unit = member_group(m.name) == 5 ? 65536 : 64;
  uint64_t padding = (unit - start % unit) % unit;
  const uint64_t fixed_extra = header_without_padding(m) - 30 - m.name.size();
  if (fixed_extra + padding > kMaxExtra) padding -= 32768;  // an extra field holds no more than 65535 bytes
  return start + padding;
}

std::string local_header(const Member& m) {
  const uint64_t padding = data_offset(m) - m.header_offset - header_without_padding(m);
  std::string out = "PK\3\4";
  put_common(&out, m);
  put(&out, (large_size(m) ? 20 : 0) + kPadBlockHeader + padding, 2);
  out += m.name;
  if (large_size(m)) {
    put(&out, 0x0001, 2);
    put(&out, 16, 2);
    put(&out, m.nbytes, 8);
    put(&out, m.nbytes, 8);
  }
  put(&out, 0x4854, 2);
  put(&out, padding, 2);
  out.append(padding, '\0');
  return out;
}

std::string central_header(const Member& m) {
  std::string extra;
  if (large_size(m)) {
    put(&extra, m.nbytes, 8);
    put(&extra, m.nbytes, 8);
  }
  if (large_offset(m)) put(&extra, m.header_offset, 8);
  std::string out = "PK\1\2";
  put(&out, 0x0314, 2);  // made by: Unix, 2.0
  put_common(&out, m);
  put(&out, extra.empty() ? 0 : extra.size() + 4, 2);
  put(&out, 0, 2);           // comment
  put(&out, 0, 2);           // disk
  put(&out, 0, 2);           // internal attributes
  put(&out, 0x81A40000, 4);  // regular file, 0644
  put(&out, std::min(m.header_offset, kMax32), 4);
  out += m.name;
  if (!extra.empty()) {
    put(&out, 0x0001, 2);
    put(&out, extra.size(), 2);
    out += extra;
  }
  return out;
}

std::string end_records(uint64_t num_members, uint64_t offset, uint64_t nbytes) {
  std::string out;
  if (num_members >= kMax16 || offset >= kMax32 || nbytes >= kMax32) {
    out += "PK\6\6";
    put(&out, 44, 8);  // length of what follows
    put(&out, 45, 2);  // made by
    put(&out, 45, 2);  // needed
    put(&out, 0, 8);   // disk numbers
    put(&out, num_members, 8);
    put(&out, num_members, 8);
    put(&out, nbytes, 8);
    put(&out, offset, 8);
    out += "PK\6\7";
    put(&out, 0, 4);
    put(&out, offset + nbytes, 8);
    put(&out, 1, 4);  // disks
  }
  out += "PK\5\6";
  put(&out, 0, 4);  // disk numbers
  put(&out, std::min(num_members, kMax16), 2);
  put(&out, std::min(num_members, kMax16), 2);
  put(&out, std::min(nbytes, kMax32), 4);
  put(&out, std::min(offset, kMax32), 4);
  put(&out, 0, 2);  // comment
  return out;
}

Status read_zip(const Source& source, std::vector<Member>* members) {
  Directory directory;
  HT_RETURN_IF_ERROR(read_end(source, &directory));
  DirectoryText text(source, directory);
  members->clear();  // and not reserved: what the end record says is not believed
  uint64_t position = 0;
  for (uint64_t i = 0; i < directory.num_members; ++i) {
    Member member;
    size_t used = 0;
    HT_RETURN_IF_ERROR(text.fill());
    HT_RETURN_IF_ERROR(parse_central(text.data(), text.nbytes(), i, &member, &used));
    text.skip(used);
    HT_RETURN_IF_ERROR(
        check_place(source, members->empty() ? nullptr : &members->back(), &member, &position, directory.offset));
    members->push_back(std::move(member));
  }
  HT_RETURN_IF_ERROR(text.fill());
  if (text.nbytes() != 0) return error(HT_BAD_BUNDLE, "bytes after the last central header");
  if (position != directory.offset) return error(HT_BAD_BUNDLE, "bytes between the last member and the directory");
  if (members->empty() || members->front().name != "manifest.json") {
    return error(HT_BAD_BUNDLE, "not a bundle: the first member is not manifest.json");
  }
  return Status();
}

Status read_member(const Source& source, const Member& member, std::string* data) {
  data->resize(member.nbytes);
  HT_RETURN_IF_ERROR(source.read(member.data_offset, member.nbytes, data->data()));
  if (crc32(0, data->data(), data->size()) != member.crc32) {
    return error(HT_BAD_BUNDLE, "member %s: its CRC-32 is wrong", member.name.c_str());
  }
  return Status();
}

}  // namespace hardtack::rt
