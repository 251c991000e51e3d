#include "support/zip_writer.h"

#include "hash.h"
#include "zip.h"

namespace hardtack::testing {

std::string write_zip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out, directory;
  for (const auto& [name, bytes] : members) {
    rt::Member member;
    member.name = name;
    member.nbytes = bytes.size();
    member.header_offset = out.size();
    member.crc32 = rt::crc32(0, bytes.data(), bytes.size());
    out += rt::local_header(member) + bytes;
    directory += rt::central_header(member);
  }
  const size_t offset = out.size();
  return out + directory + rt::end_records(members.size(), offset, directory.size());
}

}  // namespace hardtack::testing
