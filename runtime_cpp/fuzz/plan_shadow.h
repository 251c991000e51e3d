// What a run has written so far, byte by byte: a proof's claims, looked at while they are relied on.
#pragma once

#include <functional>

#include "binding.h"

namespace hardtack::fuzz {

/// One element that a launch accesses.
struct Accessed {
  uint32_t buffer = 0;  // among the launch's
  int64_t byte = 0, nbytes = 0;
  bool reads = false, writes = false;
  bool fills = false;  // it is written whatever the data
};

class PlanShadow {
 public:
  PlanShadow(const rt::Plan& plan, const rt::Binding& binding);

  /// Adds the elements that a launch accesses to `num_elements`; false when they are more than `max`.
  bool count(const rt::Instr& launch, uint64_t max, uint64_t* num_elements) const;
  void each_access(const rt::Instr& launch, const std::function<void(const Accessed&)>& see) const;

  /// After each instruction; ends the process where it must not have been run.
  void step(const rt::Instr& instr);
  /// At the end of a run.
  void check_outputs() const;

 private:
  struct Boxed {
    uint32_t value = 0;
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
    Accessed element;  // `byte` is not filled
  };
  std::vector<Boxed> boxes(const rt::Instr& launch) const;
  bool find(uint32_t value, size_t* region, size_t* first) const;
  void launch(const rt::Instr& i);
  void read(uint32_t value) const;
  void write(uint32_t value, int64_t byte, int64_t nbytes, bool fills);
  [[noreturn]] void fail(const char* problem, uint32_t value) const;

  const rt::Plan& plan_;
  const rt::Binding& binding_;
  std::vector<std::vector<uint32_t>>
      owners_;  // of the arena's bytes, then of each output's: 1 + the value there; 0: none
};

}  // namespace hardtack::fuzz
