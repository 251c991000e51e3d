#include "cgroup.h"

#include <limits>
#include <vector>

#include "text_file.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();  // CPUs of no quota

// A line of /proc/self/cgroup: in which group of a hierarchy this process is.
struct Group {
  bool v2;
  std::string_view path;  // from the hierarchy's root, as this process sees it
};

// A line of /proc/self/mountinfo: a place where a hierarchy with the CPU controller is mounted.
struct Mount {
  bool v2;
  std::string root;   // the group that lies at the mount point
  std::string point;  // the mount point
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    if (cut(&words, ',') == word) return true;
  }
  return false;
}

// Blanks and backslashes are written as \040 and \134.
std::string unescaped(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Lines as "0::/a/b" (version 2) and "4:cpu,cpuacct:/a/b" (version 1).
std::vector<Group> groups_of(std::string_view text) {
  std::vector<Group> groups;
  while (!text.empty()) {
    std::string_view line = cut(&text, '\n');
    const std::string_view id = cut(&line, ':'), controllers = cut(&line, ':');
    if (line.empty() || line[0] != '/') continue;
    if (id == "0" && controllers.empty()) groups.push_back({true, line});
    if (has_word(controllers, "cpu")) groups.push_back({false, line});
  }
  return groups;
}

// Lines as "31 23 0:28 /root /mount/point rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct".
std::vector<Mount> mounts_of(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    std::string_view line = cut(&text, '\n');
    for (int field = 0; field < 3; ++field) cut(&line, ' ');
    const std::string_view root = cut(&line, ' '), point = cut(&line, ' ');
    const size_t optional_end = line.find(" - ");
    if (optional_end == std::string_view::npos) continue;
    line.remove_prefix(optional_end + 3);
    const std::string_view type = cut(&line, ' ');
    cut(&line, ' ');  // the source, which can be anything
    if (type == "cgroup2") mounts.push_back({true, unescaped(root), unescaped(point)});
    if (type == "cgroup" && has_word(line, "cpu")) mounts.push_back({false, unescaped(root), unescaped(point)});
  }
  return mounts;
}

// CPUs of a quota, rounded up: a process with half a CPU still runs one thread.
int64_t cpus_of(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return kNone;
  return quota / period + (quota % period != 0 ? 1 : 0);
}

// cpu.max is "quota period" or "max period", in microseconds.
int64_t cpus_v2(const std::string& folder) {
  const std::string text = read_text(folder + "/cpu.max");
  std::string_view rest = text, line = cut(&rest, '\n');
  int64_t quota = 0, period = 0;
  const std::string_view first = cut(&line, ' ');
  return parse_number(first, &quota) && parse_number(line, &period) ? cpus_of(quota, period) : kNone;
}

// Microseconds, too; a quota of -1 is none.
int64_t cpus_v1(const std::string& folder) {
  int64_t quota = 0, period = 0;
  const bool found =
      read_number(folder + "/cpu.cfs_quota_us", &quota) && read_number(folder + "/cpu.cfs_period_us", &period);
  return found ? cpus_of(quota, period) : kNone;
}

// Whether `path` is `root` or lies in it; then `below` is the rest, which is empty or begins with a slash.
bool lies_in(std::string_view path, std::string_view root, std::string_view* below) {
  if (root == "/") root = "";
  if (path.substr(0, root.size()) != root) return false;
  *below = path.substr(root.size());
  if (*below == "/") *below = "";
  return below->empty() || below->front() == '/';
}

// Groups outside of this process's cgroup namespace have paths as /../other, and are not to be seen here.
bool leads_out(std::string_view below) {
  while (!below.empty()) {
    if (cut(&below, '/') == "..") return true;
  }
  return false;
}

// The least quota of the group `below` a mount point and of all groups from there up to the mount point.
int64_t least_cpus(const std::string& point, std::string_view below, bool v2) {
  if (leads_out(below)) below = "";
  int64_t least = kNone;
  for (;;) {
    const std::string folder = point + std::string(below);
    const int64_t cpus = v2 ? cpus_v2(folder) : cpus_v1(folder);
    if (cpus < least) least = cpus;
    if (below.empty()) return least;
    below = below.substr(0, below.rfind('/'));
  }
}

int64_t cpus_of_group(const std::string& root, const Group& group, const std::vector<Mount>& mounts) {
  int64_t least = kNone;
  const Mount* first = nullptr;
  bool found = false;
  for (const Mount& mount : mounts) {
    if (mount.v2 != group.v2) continue;
    if (first == nullptr) first = &mount;
    std::string_view below;
    if (!lies_in(group.path, mount.root, &below)) continue;
    found = true;
    const int64_t cpus = least_cpus(root + mount.point, below, group.v2);
    if (cpus < least) least = cpus;
  }
  // In a container paths may be those of the host, of which only the container's own group is mounted.
  return found || first == nullptr ? least : least_cpus(root + first->point, "", group.v2);
}

}  // namespace

int32_t cgroup_cpus(const std::string& root) {
  const std::string groups = read_text(root + "/proc/self/cgroup");
  const std::vector<Mount> mounts = mounts_of(read_text(root + "/proc/self/mountinfo"));
  int64_t least = kNone;
  for (const Group& group : groups_of(groups)) {
    const int64_t cpus = cpus_of_group(root, group, mounts);
    if (cpus < least) least = cpus;
  }
  if (least == kNone) return 0;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(least < kMost ? least : kMost);
}

}  // namespace hardtack::rt
