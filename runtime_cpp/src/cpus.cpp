#include "cpus.h"

#include <hardtack/hardtack.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>

#include "cgroup.h"
#include "text_file.h"
#include "thread_pool.h"

namespace hardtack::rt {
namespace {

constexpr int32_t kMostCpus = 1 << 16;  // of a mask that is asked for, and of a list that is read
// Tasks that templates cut for each worker (make_grid of blocks.h, ranges of loops.h).
constexpr int32_t kTasksPerWorker = 4;
// An E-core's FMA units are half as wide as a P-core's (Gracemont: 2 x 128 bits), and its clock is lower by a quarter.
constexpr double kEfficientSpeed = 0.4;

const char* const kCpuFolder = "/sys/devices/system/cpu/cpu";

std::string file_of(const std::string& root, int32_t cpu, const char* name) {
  return root + kCpuFolder + std::to_string(cpu) + name;
}

bool in_virtual_machine(const std::string& root) {
  // The flags of the first CPU: one is as good as all, of which there may be hundreds.
  const std::string text = read_text(root + "/proc/cpuinfo", 8192);
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = cut(&rest, '\n');
    if (line.substr(0, 5) != "flags") continue;
    while (!line.empty()) {
      if (cut(&line, ' ') == "hypervisor") return true;
    }
    return false;
  }
  return false;
}

std::vector<int32_t> read_cpu_list(const std::string& path) {
  const std::string text = read_text(path);
  std::string_view rest = text;
  return parse_cpu_list(cut(&rest, '\n'));
}

// One CPU of each core: the first allowed one.
std::vector<int32_t> one_cpu_a_core(const std::vector<int32_t>& cpus, const std::string& root) {
  int64_t active = 1;
  if (read_number(root + "/sys/devices/system/cpu/smt/active", &active) && active == 0) return cpus;
  if (in_virtual_machine(root)) return cpus;
  std::vector<int32_t> first;
  std::vector<bool> seen(static_cast<size_t>(kMostCpus));
  for (const int32_t cpu : cpus) {
    if (seen[static_cast<size_t>(cpu)]) continue;
    first.push_back(cpu);
    for (const int32_t sibling : read_cpu_list(file_of(root, cpu, "/topology/thread_siblings_list"))) {
      seen[static_cast<size_t>(sibling)] = true;
    }
  }
  return first;
}

// Of each CPU, in any unit: Arm's kernels measure them, Intel's hybrid CPUs have two kinds.
std::vector<double> speeds_of(const std::vector<int32_t>& cpus, const std::string& root) {
  std::vector<double> speeds;
  for (const int32_t cpu : cpus) {
    int64_t capacity = 0;
    if (!read_number(file_of(root, cpu, "/cpu_capacity"), &capacity) || capacity <= 0) break;
    speeds.push_back(static_cast<double>(capacity));
  }
  if (speeds.size() == cpus.size()) return speeds;
  speeds.assign(cpus.size(), 1.0);
  const std::vector<int32_t> efficient = read_cpu_list(root + "/sys/devices/cpu_atom/cpus");
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (std::find(efficient.begin(), efficient.end(), cpus[i]) != efficient.end()) speeds[i] = kEfficientSpeed;
  }
  return speeds;
}

int this_thread(size_t nbytes, cpu_set_t* set) { return ::sched_getaffinity(0, nbytes, set); }

}  // namespace

std::vector<int32_t> allowed_cpus(AffinityCall call) {
  if (call == nullptr) call = &this_thread;
  for (int32_t most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    const size_t nbytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    std::vector<cpu_set_t> sets((nbytes + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t));
    if (call(nbytes, sets.data()) != 0) {
      if (errno == EINVAL) continue;  // the kernel's mask is larger
      break;
    }
    std::vector<int32_t> cpus;
    for (int32_t cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), nbytes, sets.data())) cpus.push_back(cpu);
    }
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

std::vector<int32_t> parse_cpu_list(std::string_view text) {
  std::vector<int32_t> cpus;
  while (!text.empty()) {
    std::string_view range = cut(&text, ',');
    const bool is_one = range.find('-') == std::string_view::npos;
    const std::string_view low = cut(&range, '-');
    int64_t first = 0, last = 0;
    if (!parse_number(low, &first) || !parse_number(is_one ? low : range, &last)) return {};
    if (first < 0 || last < first || last >= kMostCpus || (!cpus.empty() && first <= cpus.back())) return {};
    for (int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int32_t>(cpu));
  }
  return cpus;
}

std::vector<double> core_speeds(const std::vector<int32_t>& cpus, const std::string& root) {
  std::vector<double> speeds = speeds_of(one_cpu_a_core(cpus, root), root);
  std::sort(speeds.begin(), speeds.end(), std::greater<double>());
  const double fastest = speeds.empty() ? 1.0 : speeds.front();
  for (double& speed : speeds) speed /= fastest;
  return speeds;
}

// Work of 1 in n tasks ends, wherever each is begun, no later than 1 / (all speeds) + (a task on the slowest core), less
// what that core has done meanwhile: Graham's bound for list scheduling. Cores of one speed are taken or left together.
int32_t worthwhile_cores(const std::vector<double>& speeds) {
  double all = 0, least = 0;
  size_t best = 1;
  for (size_t n = 1; n <= speeds.size(); ++n) {
    const double slowest = speeds[n - 1];
    all += slowest;
    if (n < speeds.size() && speeds[n] == slowest) continue;
    const double task = 1.0 / (kTasksPerWorker * static_cast<double>(n));
    const double time = 1.0 / all + task / slowest * (1.0 - slowest / all);
    if (least == 0 || time < least) {
      least = time;
      best = n;
    }
  }
  return static_cast<int32_t>(best);
}

int32_t usable_cpus() {
  const auto cpus = static_cast<int32_t>(allowed_cpus().size());
  const int32_t quota = cgroup_cpus();
  return quota > 0 && quota < cpus ? quota : cpus;
}

int32_t default_threads() {
  const int32_t cores = worthwhile_cores(core_speeds(allowed_cpus()));
  const int32_t quota = cgroup_cpus();
  return std::min(quota > 0 && quota < cores ? quota : cores, ThreadPool::kMaxThreads);
}

}  // namespace hardtack::rt

extern "C" int32_t ht_usable_cpus(void) { return hardtack::rt::usable_cpus(); }
