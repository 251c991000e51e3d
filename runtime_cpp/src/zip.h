// The container (docs/package.md): a ZIP in one canonical form. Everything but a member's name, size and checksum
// follows from the form, so the reader writes the headers that must be there and compares.
#pragma once

#include <string>
#include <vector>

#include "source.h"

namespace hardtack::rt {

struct Member {
  std::string name;
  uint64_t nbytes = 0;
  uint64_t header_offset = 0;
  uint64_t data_offset = 0;
  uint32_t crc32 = 0;
};

/// The members in archive order. HT_BAD_BUNDLE for any other form.
Status read_zip(const Source& source, std::vector<Member>* members);

/// Where a member's data starts when its local header starts at `header_offset`.
uint64_t data_offset(const Member& member);
/// The bytes of the headers, as a writer of the canonical form makes them.
std::string local_header(const Member& member);
std::string central_header(const Member& member);
std::string end_records(uint64_t num_members, uint64_t directory_offset, uint64_t directory_nbytes);

/// Orders members: manifest, plans, lib, kernels, debug, weights; -1 for a name that belongs nowhere.
int member_group(const std::string& name);

/// Reads all of a member and checks its CRC-32.
Status read_member(const Source& source, const Member& member, std::string* data);

}  // namespace hardtack::rt
