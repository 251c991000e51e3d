// An entry point bound to one set of sizes: expressions evaluated, places proved, launch arguments laid out. A run only
// puts the callers' pointers in.
#pragma once

#include <memory>
#include <vector>

#include "device.h"
#include "program.h"

namespace hardtack::rt {

/// Of an input or output, port_ndim of its value each; strides count elements, of complex numbers these.
struct BoundPort {
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  int64_t nbytes = 0;
};

/// Input and output pointers that a binding ran with, and from the second time on the recording of such a run.
struct Replay {
  std::vector<void*> pointers;
  std::unique_ptr<Recording> recording;
  uint64_t last_used = 0;
};

class Binding {
 public:
  /// Evaluates everything that these symbols, the first ones of the plan, decide; HT_CONTRACT, or HT_KERNEL if a run has
  /// read some of them, when an expression has no value for them. What else there is stays unknown: sizes and nbytes are
  /// -1, and no launch that needs it may be run.
  static Status create(const Program& program, const std::vector<int64_t>& syms, std::unique_ptr<Binding>* binding);
  /// Proves sizes and places (unless the plan is static, which was proved at load) and lays out the launches.
  Status prepare(Queue* queue, size_t program_index);

  const std::vector<int64_t>& syms() const { return syms_; }
  bool knows_all() const { return syms_.size() == program_.plan.syms.size(); }
  const int64_t* exprs() const { return exprs_.data(); }
  const BoundPort& input(size_t i) const { return inputs_[i]; }
  const BoundPort& output(size_t i) const { return outputs_[i]; }
  int64_t arena_nbytes() const { return exprs_[program_.plan.arena_with(syms_.size())]; }
  int64_t workspace_nbytes() const { return launches_->workspace_nbytes(); }

  /// Points arena values, constants and states to where they lie; `generation` tells whether they have moved since.
  /// Recordings are forgotten.
  void place(const Device& device, void* arena, void* workspace, void* const* states, uint64_t generation);
  bool placed(uint64_t generation) const { return generation_ == generation; }
  void set_input(size_t i, void* data) { values_[program_.plan.inputs[i]] = data; }
  void set_output(size_t i, void* data) { values_[program_.plan.outputs[i]] = data; }
  /// After the last set_input and set_output of a run.
  Status patch_slots() {
    for (const IoSlot& io : program_.io_slots) slots_[io.slot] = values_[io.value];
    return launches_->pointers_changed();
  }

  void* value(uint32_t v) const { return values_[v]; }
  /// A value's sizes and strides; nbytes is not filled.
  BoundPort dims(uint32_t value) const;
  int64_t nbytes(uint32_t value) const { return nbytes_[value]; }
  /// What changes from run to run: the pointers of inputs and outputs.
  void io_pointers(std::vector<void*>* pointers) const;
  Launches& launches() const { return *launches_; }

  uint64_t last_used = 0;
  std::vector<Replay> replays;  // good as long as nothing moves

 private:
  explicit Binding(const Program& program) : program_(program) {}
  void copy_dims();
  bool known(uint32_t e) const { return program_.plan.exprs.is_known(e, syms_.size()); }
  bool is_ready(const Instr& i) const;
  Status add_port(uint32_t value, std::vector<BoundPort>* ports);
  void evaluate_maps();

  const Program& program_;
  std::vector<int64_t> syms_;
  std::vector<int64_t> exprs_;
  std::vector<int64_t> dims_;    // plan.dims evaluated: shapes and strides of all values
  std::vector<int64_t> nbytes_;  // by value
  std::vector<BoundPort> inputs_, outputs_;
  std::vector<std::vector<int64_t>> complex_strides_;  // of those whose numbers are complex
  std::vector<void*> values_;
  std::vector<void*> slots_;
  std::vector<int64_t> ints_;
  std::vector<int64_t> map_dims_;  // plan.map_dims evaluated
  std::vector<MapSite> maps_;      // plan.map_sources evaluated
  std::unique_ptr<Launches> launches_;
  uint64_t generation_ = 0;
};

}  // namespace hardtack::rt
