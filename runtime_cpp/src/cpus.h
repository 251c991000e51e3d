// Which CPUs this process may use, and how many threads they are worth.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hardtack::rt {

/// Asks for the affinity of the calling thread, as sched_getaffinity does.
using AffinityCall = int (*)(size_t nbytes, cpu_set_t* set);

/// The numbers of the CPUs that this thread may run on, ascending, however many the machine has; CPU 0 when the system
/// does not say.
std::vector<int32_t> allowed_cpus(AffinityCall call = nullptr);

/// CPUs of a list as the kernel writes it, such as "0-3,8"; empty when it is none.
std::vector<int32_t> parse_cpu_list(std::string_view text);

/// The speeds of the cores that `cpus` belong to, fastest first; the fastest has 1. CPUs that share a core (SMT) are one
/// core, but in a virtual machine, where the topology is what the hypervisor wants it to be. `root` stands in front of
/// /proc and /sys: tests lay out trees of their own.
std::vector<double> core_speeds(const std::vector<int32_t>& cpus, const std::string& root = "");

/// How many of the cores, fastest first, finish work soonest that is handed out in a few tasks a thread. A slow core
/// that begins the last task holds up all others.
int32_t worthwhile_cores(const std::vector<double>& speeds);

/// CPUs that this process may use at a time: its affinity, and the quota of its control groups.
int32_t usable_cpus();

/// Threads of a pool whose number nobody gives: one for each core that is worth it, within the quota; at most 1024.
int32_t default_threads();

}  // namespace hardtack::rt
