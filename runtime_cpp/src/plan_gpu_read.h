// The parts of a plan that only GPU targets have, read for plan.cpp.
#pragma once

#include "plan.h"

namespace hardtack::rt {

class GpuPlanParser {
 public:
  GpuPlanParser(JsonReader* json, Plan* plan) : json_(*json), plan_(*plan) {}
  /// The value of a kernel's key `gpu`.
  GpuKernel parse_kernel();
  /// The value of a launch's key `grid`.
  void parse_grid(uint32_t (&grid)[3]);
  /// A launch's key `maps` and its value.
  void parse_map_sources(Instr* i);

 private:
  GpuArg parse_arg();
  TensorMap parse_tensor_map();
  MapSource parse_map_source();

  JsonReader& json_;
  Plan& plan_;
};

}  // namespace hardtack::rt
