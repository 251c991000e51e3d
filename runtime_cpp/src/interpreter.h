// Runs a bound program. Everything has been proved: the loop only moves on, calls, and looks at what kernels return.
#pragma once

#include "binding.h"

namespace hardtack::rt {

struct Observer {
  ht_observer call = nullptr;
  void* user = nullptr;
};

Status interpret(const Program& program, const Binding& binding, const Device& device, const Observer& observer);

}  // namespace hardtack::rt
