// Runs a bound program. Everything has been proved: the loop only moves on, calls, and looks at what kernels return.
#pragma once

#include <atomic>

#include "binding.h"

namespace hardtack::rt {

/// Who watches a run and may stop it.
struct Observer {
  ht_observer call = nullptr;
  void* user = nullptr;
  const std::atomic<bool>* stop = nullptr;  // set by any thread while the run goes on; null: nobody asks

  bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
};

/// What gives a run new sizes: a binding that knows the value of one more symbol, with the same memory and pointers.
class Sizes {
 public:
  virtual ~Sizes() = default;
  virtual Status read(int64_t value, const Binding** binding) = 0;
};

/// With an observer, waits for each instruction and shows it copies of its values on the host. HT_CANCELLED when it, or
/// `stop`, which is looked at before each launch and each jump backwards, ended the run. `wrote_states`: set before the
/// first instruction that writes a state is run. sizes: asked at each read; null for a program without.
Status interpret(const Program& program, const Binding& binding, Queue* queue, const Observer& observer, Sizes* sizes,
                 bool* wrote_states);

/// HT_KERNEL for launch `launch` of the program, which reported `code`.
Status kernel_failed(const Program& program, uint32_t launch, int32_t code);

}  // namespace hardtack::rt
