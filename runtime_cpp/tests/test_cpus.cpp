// How many threads a machine is worth: affinity, SMT, cores of two kinds.
#include <doctest/doctest.h>
#include <hardtack/hardtack.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "cpus.h"
#include "support/fake_system.h"

using namespace hardtack::rt;
using hardtack::testing::FakeSystem;

namespace {

std::vector<int32_t> first_cpus(int32_t count) {
  std::vector<int32_t> cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

std::string cpu_file(int32_t cpu, const std::string& name) {
  return "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name;
}

// CPU i and CPU i + cores share a core.
void put_siblings(FakeSystem* system, int32_t cores) {
  for (int32_t cpu = 0; cpu < 2 * cores; ++cpu) {
    const int32_t core = cpu % cores;
    system->put(cpu_file(cpu, "topology/thread_siblings_list"),
                std::to_string(core) + "," + std::to_string(core + cores));
  }
}

std::vector<double> cores_of(int fast, int slow, double speed) {
  std::vector<double> speeds(static_cast<size_t>(fast), 1.0);
  speeds.insert(speeds.end(), static_cast<size_t>(slow), speed);
  return speeds;
}

// A kernel with room for 4096 CPUs, which refuses smaller masks.
int large_machine(size_t nbytes, cpu_set_t* set) {
  if (nbytes < 4096 / 8) {
    errno = EINVAL;
    return -1;
  }
  std::memset(set, 0, nbytes);
  for (const size_t cpu : {size_t{3}, size_t{1024}, size_t{4095}}) CPU_SET_S(cpu, nbytes, set);
  return 0;
}

int failing(size_t, cpu_set_t*) {
  errno = EPERM;
  return -1;
}

int always_too_small(size_t, cpu_set_t*) {
  errno = EINVAL;
  return -1;
}

int empty(size_t nbytes, cpu_set_t* set) {
  std::memset(set, 0, nbytes);
  return 0;
}

}  // namespace

TEST_CASE("lists of CPUs") {
  CHECK(parse_cpu_list("0") == std::vector<int32_t>{0});
  CHECK(parse_cpu_list("0-3,8,10-11") == std::vector<int32_t>{0, 1, 2, 3, 8, 10, 11});
  for (const char* text : {"", "a", "1-", "-1", "3-1", "0-3-5", "1,,2", "2,1", "1,1", "0-65536", "0 1",
                           "9223372036854775807", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(parse_cpu_list(text).empty());
  }
}

TEST_CASE("the affinity of machines with more than 1024 CPUs") {
  CHECK(allowed_cpus(&large_machine) == std::vector<int32_t>{3, 1024, 4095});
  CHECK(allowed_cpus(&failing) == std::vector<int32_t>{0});
  CHECK(allowed_cpus(&always_too_small) == std::vector<int32_t>{0});
  CHECK(allowed_cpus(&empty) == std::vector<int32_t>{0});
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK(static_cast<int>(allowed_cpus().size()) == CPU_COUNT(&set));
}

TEST_CASE("a system that says nothing has cores of one kind, without SMT") {
  FakeSystem system;
  CHECK(core_speeds(first_cpus(6), system.root()) == cores_of(6, 0, 1));
}

TEST_CASE("CPUs that share a core are one core") {
  FakeSystem system;
  put_siblings(&system, 4);
  CHECK(core_speeds(first_cpus(8), system.root()).size() == 4);
  CHECK(core_speeds({0, 1, 2, 3}, system.root()).size() == 4);
  CHECK(core_speeds({0, 4}, system.root()).size() == 1);  // the affinity has one core, twice
  CHECK(core_speeds({4, 5, 6}, system.root()).size() == 3);
  system.put("/sys/devices/system/cpu/smt/active", "1");
  CHECK(core_speeds(first_cpus(8), system.root()).size() == 4);
  system.put("/sys/devices/system/cpu/smt/active", "0");
  CHECK(core_speeds(first_cpus(8), system.root()).size() == 8);
}

TEST_CASE("in a virtual machine each CPU counts, whatever the hypervisor says of cores") {
  FakeSystem system;
  put_siblings(&system, 1);
  system.put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\nbugs\t\t: none");
  CHECK(core_speeds(first_cpus(2), system.root()).size() == 2);
  system.put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme lahf_lm\nbugs\t\t: hypervisor");
  CHECK(core_speeds(first_cpus(2), system.root()).size() == 1);
}

TEST_CASE("siblings that make no sense join nothing") {
  for (const char* text : {"", "x", "5-1", "0-99999999"}) {
    FakeSystem system;
    system.put(cpu_file(0, "topology/thread_siblings_list"), text);
    CHECK(core_speeds(first_cpus(2), system.root()).size() == 2);
  }
}

TEST_CASE("a hybrid Intel CPU: P-cores with two threads each, E-cores at two fifths of their speed") {
  FakeSystem system;
  // As on a 12900K: CPUs 0 to 15 are two by two the 8 P-cores, 16 to 23 are the E-cores.
  for (int32_t cpu = 0; cpu < 24; ++cpu) {
    const int32_t first = cpu / 2 * 2;
    const std::string pair = std::to_string(first) + "-" + std::to_string(first + 1);
    system.put(cpu_file(cpu, "topology/thread_siblings_list"), cpu < 16 ? pair : std::to_string(cpu));
  }
  system.put("/sys/devices/cpu_core/cpus", "0-15").put("/sys/devices/cpu_atom/cpus", "16-23");
  const std::vector<double> speeds = core_speeds(first_cpus(24), system.root());
  CHECK(speeds == cores_of(8, 8, 0.4));
  CHECK(worthwhile_cores(speeds) == 16);
  CHECK(core_speeds({16, 17, 18}, system.root()) == cores_of(3, 0, 1));  // E-cores alone: the fastest there are
}

TEST_CASE("Arm's capacities are the speeds of cores, where each has one") {
  FakeSystem system;
  for (int32_t cpu = 0; cpu < 4; ++cpu) system.put(cpu_file(cpu, "cpu_capacity"), "256");
  for (int32_t cpu = 4; cpu < 8; ++cpu) system.put(cpu_file(cpu, "cpu_capacity"), "1024");
  CHECK(core_speeds(first_cpus(8), system.root()) == cores_of(4, 4, 0.25));
  for (const char* text : {"", "0", "-4", "fast"}) {
    system.put(cpu_file(7, "cpu_capacity"), text);
    CHECK(core_speeds(first_cpus(8), system.root()) == cores_of(8, 0, 1));
  }
}

TEST_CASE("slow cores take part where they shorten a run, and stay out where they hold it up") {
  CHECK(worthwhile_cores({}) == 1);
  CHECK(worthwhile_cores({1.0}) == 1);
  CHECK(worthwhile_cores(cores_of(64, 0, 1)) == 64);
  CHECK(worthwhile_cores(cores_of(4, 4, 0.25)) == 4);  // big.LITTLE: the last task of a little core takes too long
  CHECK(worthwhile_cores(cores_of(4, 4, 0.5)) == 8);
  CHECK(worthwhile_cores(cores_of(2, 8, 0.4)) == 10);  // a laptop: E-cores have most of the work
  CHECK(worthwhile_cores(cores_of(6, 8, 0.4)) == 14);
  CHECK(worthwhile_cores(cores_of(8, 4, 0.4)) == 8);
  CHECK(worthwhile_cores(cores_of(8, 8, 0.4)) == 16);
  CHECK(worthwhile_cores(cores_of(8, 16, 0.4)) == 24);
  CHECK(worthwhile_cores({1.0, 0.8, 0.8, 0.8, 0.3, 0.3, 0.3, 0.3}) == 8);
  CHECK(worthwhile_cores({1.0, 0.8, 0.8, 0.8, 0.2, 0.2, 0.2, 0.2}) == 4);
}

TEST_CASE("a pool's default is within what the process may use") {
  CHECK(default_threads() >= 1);
  CHECK(default_threads() <= usable_cpus());
  CHECK(usable_cpus() <= static_cast<int32_t>(allowed_cpus().size()));
  CHECK(ht_usable_cpus() == usable_cpus());
}
