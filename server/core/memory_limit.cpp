// How much memory this process may have, as the system says.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "server/core/budget.h"

namespace hardtack::serve {

namespace {

constexpr std::uint64_t kNone = std::uint64_t{1} << 60;  // version 1 says "no limit" with a huge number

// The limit that a file holds; kNone for "max", for no such file and for what is no number.
std::uint64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t limit = 0;
  return file >> limit ? std::min(limit, kNone) : kNone;
}

// The least limit of a group and of all that it lies in. In a container the names may be those of the host, of which only
// the root is there.
std::uint64_t limit_of_group(const std::string& root, std::string group, const std::string& file) {
  std::uint64_t least = limit_in(root + "/" + file);
  while (!group.empty() && group != "/") {
    least = std::min(least, limit_in(std::string(root).append(group).append("/").append(file)));
    group = group.substr(0, group.rfind('/'));
  }
  return least;
}

// Lines as "0::/a/b" (version 2) and "4:cpu,memory:/a/b" (version 1).
std::uint64_t limit_of_groups(const MemoryFiles& files) {
  std::uint64_t least = kNone;
  std::ifstream groups(files.groups);
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (kinds == ",,") {
      least = std::min(least, limit_of_group(files.root, group, "memory.max"));
      least = std::min(least, limit_of_group(files.root + "/unified", group, "memory.max"));
    } else if (kinds.find(",memory,") != std::string::npos) {
      least = std::min(least, limit_of_group(files.root + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

std::uint64_t limit_of_addresses() {
  rlimit space{};
  return ::getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY ? kNone : space.rlim_cur;
}

// Less what stacks of threads and heaps of malloc will take as addresses, and never as memory.
std::uint64_t left_of_address_space() {
  constexpr std::uint64_t kStacksAndHeaps = std::uint64_t{160} << 20;
  const std::uint64_t limit = limit_of_addresses();
  if (limit == kNone) return kNone;
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  const std::uint64_t used =
      pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + std::min(kStacksAndHeaps, limit / 4);
  return limit > used ? limit - used : 0;
}

}  // namespace

std::uint64_t memory_limit(const MemoryFiles& files) {
  const auto pages = static_cast<std::uint64_t>(std::max<long>(::sysconf(_SC_PHYS_PAGES), 0));
  const std::uint64_t physical = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min({physical == 0 ? kNone : physical, limit_of_groups(files), left_of_address_space()});
}

bool addresses_are_limited() { return limit_of_addresses() != kNone; }

std::uint64_t budget_within(std::uint64_t limit) {
  constexpr std::uint64_t kProgram = std::uint64_t{256} << 20;
  return limit - std::max(limit / 8, std::min(kProgram, limit / 4));
}

}  // namespace hardtack::serve
