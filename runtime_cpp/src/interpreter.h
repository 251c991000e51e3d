// Runs a bound program. Everything has been proved: the loop only moves on, calls, and looks at what kernels return.
#pragma once

#include "binding.h"

namespace hardtack::rt {

struct Observer {
  ht_observer call = nullptr;
  void* user = nullptr;
};

/// With an observer, waits for each instruction and shows it copies of its values on the host.
Status interpret(const Program& program, const Binding& binding, Queue* queue, const Observer& observer);

/// HT_KERNEL for launch `launch` of the program, which reported `code`.
Status kernel_failed(const Program& program, uint32_t launch, int32_t code);

}  // namespace hardtack::rt
