// A verified plan in the form that the interpreter runs: structured control flow made into jumps, kernels resolved.
#pragma once

#include <string>
#include <vector>

#include "plan.h"

namespace hardtack::rt {

enum class StepOp : uint8_t {
  launch,
  copy,
  fill,
  test,  // go to `target` unless the condition holds
  jump,  // go to `target`
  read,  // a symbol takes a value
};

struct Step {
  StepOp op = StepOp::launch;
  uint32_t instr = 0;   // in plan.instrs
  uint32_t number = 0;  // of the instruction, in order of execution; what observers see
  uint32_t target = 0;
  uint32_t ordinal = 0;  // among the launches
  bool writes_state = false;
};

/// A buffer argument of a launch that is an input or output: its pointer changes from run to run.
struct IoSlot {
  uint32_t slot = 0;
  uint32_t value = 0;
};

struct Program {
  Plan plan;
  std::vector<Step> steps;
  std::vector<uint32_t> launches;     // plan.instrs index of each launch
  std::vector<uint32_t> slot_values;  // the values of all launches' buffers, one launch after the other
  std::vector<uint32_t> int_exprs;    // the expressions of all launches' ints, likewise
  std::vector<IoSlot> io_slots;
  std::vector<uint32_t> used_states, written_states;  // ascending
};

/// Why the program's launches cannot be recorded and replayed as a whole; "" where they can.
std::string no_graph_reason(const Program& program);

/// Lowers `plan`, which has been verified.
Program make_program(Plan plan);

}  // namespace hardtack::rt
