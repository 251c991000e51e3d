// Reads the calls that a kernel declares (docs/plan.md, "Calls").
#pragma once

#include "plan.h"

namespace hardtack::rt {

class CallParser {
 public:
  CallParser(JsonReader* json, Plan* plan) : json_(*json), plan_(*plan) {}
  void parse();

 private:
  void parse_access();

  JsonReader& json_;
  Plan& plan_;
};

}  // namespace hardtack::rt
