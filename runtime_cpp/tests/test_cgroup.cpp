// CPU quotas of control groups, as systems of all kinds lay them out.
#include <doctest/doctest.h>

#include "cgroup.h"
#include "support/fake_system.h"

using hardtack::rt::cgroup_cpus;
using hardtack::testing::FakeSystem;

namespace {

const std::string kV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
const std::string kV1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct";

// A system with version 2 only, and this process in `group`.
FakeSystem& v2_system(FakeSystem* system, const std::string& group) {
  return system->put("/proc/self/cgroup", "0::" + group).put("/proc/self/mountinfo", kV2);
}

// A system with version 1 only.
FakeSystem& v1_system(FakeSystem* system, const std::string& group) {
  return system
      ->put("/proc/self/cgroup", "9:name=systemd:/\n5:cpuset:/\n4:cpu,cpuacct:" + group + "\n3:memory:" + group)
      .put("/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" + kV1);
}

FakeSystem& v1_quota(FakeSystem* system, const std::string& folder, const std::string& quota,
                     const std::string& period = "100000") {
  return system->put(folder + "/cpu.cfs_quota_us", quota).put(folder + "/cpu.cfs_period_us", period);
}

}  // namespace

TEST_CASE("version 2: a quota is rounded up to whole CPUs") {
  const struct {
    const char* text;
    int32_t cpus;
  } cases[] = {
      {"max 100000", 0},    {"100000 100000", 1},   {"150000 100000", 2},
      {"400000 100000", 4}, {"25000 50000", 1},                                             // below one CPU
      {"1 1000000", 1},     {"6400000 100000", 64}, {"9223372036854775806 5", 2147483647},  // no sum overflows
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    FakeSystem system;
    v2_system(&system, "/app").put("/sys/fs/cgroup/app/cpu.max", c.text);
    CHECK(cgroup_cpus(system.root()) == c.cpus);
  }
}

TEST_CASE("version 2: what is no quota limits nothing") {
  for (const char* text : {"", " ", "max", "none 100000", "100000", "100000 ", "100000 0", "0 100000", "-1 100000",
                           "100000 -1", "100000 max", "2 2 2", "0x10 16", "99999999999999999999 100000", "1e5 1000"}) {
    CAPTURE(text);
    FakeSystem system;
    v2_system(&system, "/app").put("/sys/fs/cgroup/app/cpu.max", text);
    CHECK(cgroup_cpus(system.root()) == 0);
  }
}

TEST_CASE("version 2: the least quota from the process's group up to the root counts") {
  FakeSystem system;
  v2_system(&system, "/a.slice/b.slice/c.scope");
  CHECK(cgroup_cpus(system.root()) == 0);
  system.put("/sys/fs/cgroup/a.slice/b.slice/c.scope/cpu.max", "max 100000");
  CHECK(cgroup_cpus(system.root()) == 0);
  system.put("/sys/fs/cgroup/a.slice/cpu.max", "600000 100000");
  CHECK(cgroup_cpus(system.root()) == 6);
  system.put("/sys/fs/cgroup/a.slice/b.slice/cpu.max", "200000 100000");
  CHECK(cgroup_cpus(system.root()) == 2);
  system.put("/sys/fs/cgroup/a.slice/b.slice/c.scope/cpu.max", "400000 100000");
  CHECK(cgroup_cpus(system.root()) == 2);
  system.put("/sys/fs/cgroup/other/cpu.max", "100000 100000");  // not its own
  CHECK(cgroup_cpus(system.root()) == 2);
}

TEST_CASE("version 2 in a container: the group is the root of its namespace, or is the mount's") {
  SUBCASE("a namespace of its own") {
    FakeSystem system;
    v2_system(&system, "/").put("/sys/fs/cgroup/cpu.max", "300000 100000");
    CHECK(cgroup_cpus(system.root()) == 3);
  }
  SUBCASE("the host's paths, of which the container's group is mounted") {
    FakeSystem system;
    system.put("/proc/self/cgroup", "0::/docker/abc/inner")
        .put("/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw")
        .put("/sys/fs/cgroup/cpu.max", "500000 100000")
        .put("/sys/fs/cgroup/inner/cpu.max", "max 100000");
    CHECK(cgroup_cpus(system.root()) == 5);
    system.put("/sys/fs/cgroup/inner/cpu.max", "300000 100000");
    CHECK(cgroup_cpus(system.root()) == 3);
  }
  SUBCASE("a group whose name begins like the mount's is another") {
    FakeSystem system;
    system.put("/proc/self/cgroup", "0::/docker/abcdef")
        .put("/proc/self/mountinfo", "30 23 0:26 /docker/abc /mnt/theirs rw - cgroup2 cgroup rw\n" + kV2)
        .put("/mnt/theirs/cpu.max", "100000 100000")
        .put("/sys/fs/cgroup/docker/abcdef/cpu.max", "700000 100000");
    CHECK(cgroup_cpus(system.root()) == 7);
  }
  SUBCASE("a group outside of the namespace: what is mounted counts") {
    FakeSystem system;
    v2_system(&system, "/../../other").put("/sys/fs/cgroup/cpu.max", "200000 100000");
    CHECK(cgroup_cpus(system.root()) == 2);
  }
  SUBCASE("the host's path, of which nothing is mounted") {
    FakeSystem system;
    system.put("/proc/self/cgroup", "0::/kubepods/pod1/c1")
        .put("/proc/self/mountinfo", "30 23 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw")
        .put("/sys/fs/cgroup/cpu.max", "800000 100000");
    CHECK(cgroup_cpus(system.root()) == 8);
  }
}

TEST_CASE("version 1: quota and period have files of their own, and -1 is no quota") {
  const struct {
    const char *quota, *period;
    int32_t cpus;
  } cases[] = {
      {"-1", "100000", 0},    {"200000", "100000", 2}, {"250000", "100000", 3}, {"10000", "100000", 1},
      {"50000", "25000", 2},  {"0", "100000", 0},      {"100000", "0", 0},      {"", "100000", 0},
      {"abc", "100000", 0},   {"100000", "abc", 0},    {"100000", "-5", 0},     {"1 1", "100000", 0},
      {"100000\n1", "10", 0},
  };
  for (const auto& c : cases) {
    CAPTURE(c.quota);
    CAPTURE(c.period);
    FakeSystem system;
    v1_quota(&v1_system(&system, "/app"), "/sys/fs/cgroup/cpu,cpuacct/app", c.quota, c.period);
    CHECK(cgroup_cpus(system.root()) == c.cpus);
  }
}

TEST_CASE("version 1: a quota without a period limits nothing") {
  FakeSystem system;
  v1_system(&system, "/app").put("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "100000");
  CHECK(cgroup_cpus(system.root()) == 0);
}

TEST_CASE("version 1: groups within groups, and containers") {
  SUBCASE("nested") {
    FakeSystem system;
    v1_system(&system, "/kubepods/pod/c");
    v1_quota(&system, "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod/c", "-1");
    v1_quota(&system, "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod", "350000");
    v1_quota(&system, "/sys/fs/cgroup/cpu,cpuacct/kubepods", "3200000");
    CHECK(cgroup_cpus(system.root()) == 4);
  }
  SUBCASE("a container that sees the host's path") {
    FakeSystem system;
    system.put("/proc/self/cgroup", "4:cpuacct,cpu:/docker/abc")
        .put("/proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpuacct,cpu");
    v1_quota(&system, "/sys/fs/cgroup/cpu", "200000");
    CHECK(cgroup_cpus(system.root()) == 2);
  }
  SUBCASE("the whole hierarchy is mounted, but the process's own group is not there") {
    FakeSystem system;
    v1_system(&system, "/docker/abc");
    v1_quota(&system, "/sys/fs/cgroup/cpu,cpuacct", "300000");
    CHECK(cgroup_cpus(system.root()) == 3);
  }
  SUBCASE("another controller's hierarchy has no say") {
    FakeSystem system;
    system.put("/proc/self/cgroup", "5:cpuset:/app\n6:cpuacct:/app")
        .put("/proc/self/mountinfo",
             "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
             "34 31 0:31 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct");
    v1_quota(&system, "/sys/fs/cgroup/cpuset/app", "100000");
    v1_quota(&system, "/sys/fs/cgroup/cpuacct/app", "100000");
    CHECK(cgroup_cpus(system.root()) == 0);
  }
}

TEST_CASE("hybrid: version 1 has the controller, version 2 the names; the least of both counts") {
  FakeSystem system;
  system.put("/proc/self/cgroup", "4:cpu,cpuacct:/app\n1:name=systemd:/app\n0::/user.slice")
      .put("/proc/self/mountinfo", kV1 + "\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  CHECK(cgroup_cpus(system.root()) == 0);
  v1_quota(&system, "/sys/fs/cgroup/cpu,cpuacct/app", "400000");
  CHECK(cgroup_cpus(system.root()) == 4);
  system.put("/sys/fs/cgroup/unified/user.slice/cpu.max", "max 100000");
  CHECK(cgroup_cpus(system.root()) == 4);
  system.put("/sys/fs/cgroup/unified/user.slice/cpu.max", "300000 100000");
  CHECK(cgroup_cpus(system.root()) == 3);
}

TEST_CASE("mount points lie anywhere, and have blanks in their names") {
  FakeSystem system;
  system.put("/proc/self/cgroup", "0::/my app")
      .put("/proc/self/mountinfo", "30 23 0:26 / /mnt/control\\040groups rw - cgroup2 none rw")
      .put("/mnt/control groups/my app/cpu.max", "200000 100000");
  CHECK(cgroup_cpus(system.root()) == 2);
}

TEST_CASE("systems without control groups, and files that make no sense, limit nothing") {
  const char* const groups[] = {"", "0::", "0:", ":::", "0::app", "4:cpu", "1:cpu:", "\n\n0\n::/\n"};
  const char* const mounts[] = {"",
                                " - ",
                                "30",
                                "30 23 0:26 / /sys/fs/cgroup rw",
                                "- cgroup2 cgroup2 rw",
                                "30 23 0:26 / /sys/fs/cgroup rw - cgroup",
                                "30 23 0:26 / /x\\9 rw - cgroup cgroup cpu"};
  CHECK(cgroup_cpus(FakeSystem().root()) == 0);
  CHECK(cgroup_cpus("/no/such/folder") == 0);
  for (const char* group : groups) {
    for (const char* mount : mounts) {
      CAPTURE(group);
      CAPTURE(mount);
      FakeSystem system;
      system.put("/proc/self/cgroup", group).put("/proc/self/mountinfo", mount);
      CHECK(cgroup_cpus(system.root()) == 0);
    }
  }
  FakeSystem only_groups, only_mounts;
  only_groups.put("/proc/self/cgroup", "0::/app").put("/sys/fs/cgroup/app/cpu.max", "100000 100000");
  only_mounts.put("/proc/self/mountinfo", kV2).put("/sys/fs/cgroup/cpu.max", "100000 100000");
  CHECK(cgroup_cpus(only_groups.root()) == 0);
  CHECK(cgroup_cpus(only_mounts.root()) == 0);
}
