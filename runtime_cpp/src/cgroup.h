// How much of the machine's CPU time control groups leave this process.
#pragma once

#include <cstdint>
#include <string>

namespace hardtack::rt {

/// The CPUs of the least quota of this process's control groups (versions 1 and 2) and of all that these lie in, rounded
/// up; 0 without a quota. What is not there, cannot be read or makes no sense limits nothing. `root` stands in front of
/// /proc and of every mount point: tests lay out trees of their own.
int32_t cgroup_cpus(const std::string& root = "");

}  // namespace hardtack::rt
