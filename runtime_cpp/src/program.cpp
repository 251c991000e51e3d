#include "program.h"

#include <set>

namespace hardtack::rt {
namespace {

class Lowering {
 public:
  explicit Lowering(Program* program) : program_(*program) {}

  void body(uint32_t first) {
    for (uint32_t i = first; i != kNone; i = program_.plan.instrs[i].next) instr(i);
  }

 private:
  uint32_t here() const { return static_cast<uint32_t>(program_.steps.size()); }

  uint32_t emit(StepOp op, uint32_t instr) {
    Step step;
    step.op = op;
    step.instr = instr;
    step.number = number_;
    program_.steps.push_back(step);
    return here() - 1;
  }

  void instr(uint32_t i) {
    const Instr& instr = program_.plan.instrs[i];
    switch (instr.op) {
      case InstrOp::launch: launch(i, instr); break;
      case InstrOp::copy:
      case InstrOp::fill:
        emit(instr.op == InstrOp::copy ? StepOp::copy : StepOp::fill, i);
        ++number_;
        break;
      case InstrOp::branch: branch(i, instr); break;
      case InstrOp::loop: loop(i, instr); break;
      case InstrOp::read:
        emit(StepOp::read, i);
        ++number_;
        break;
    }
  }

  void launch(uint32_t i, const Instr& instr) {
    const Plan& plan = program_.plan;
    program_.steps[emit(StepOp::launch, i)].ordinal = static_cast<uint32_t>(program_.launches.size());
    program_.launches.push_back(i);
    for (uint32_t k = 0; k < instr.num_buffers; ++k) {
      const uint32_t value = plan.buffers(instr)[k];
      const Storage storage = plan.values[value].storage;
      if (storage == Storage::input || storage == Storage::output) {
        program_.io_slots.push_back({static_cast<uint32_t>(program_.slot_values.size()), value});
      }
      program_.slot_values.push_back(value);
    }
    program_.int_exprs.insert(program_.int_exprs.end(), plan.ints(instr), plan.ints(instr) + instr.num_ints);
    ++number_;
  }

  void branch(uint32_t i, const Instr& instr) {
    const uint32_t test = emit(StepOp::test, i);
    ++number_;
    body(instr.first);
    const uint32_t skip = emit(StepOp::jump, i);
    program_.steps[test].target = here();
    body(instr.second);
    program_.steps[skip].target = here();
  }

  void loop(uint32_t i, const Instr& instr) {
    const uint32_t start = here();
    body(instr.first);
    const uint32_t test = emit(StepOp::test, i);
    ++number_;
    body(instr.second);
    program_.steps[emit(StepOp::jump, i)].target = start;
    program_.steps[test].target = here();
  }

  Program& program_;
  uint32_t number_ = 0;
};

// Which states the plan uses, and the steps that write one.
void find_states(Program* program) {
  const Plan& plan = program->plan;
  std::set<uint32_t> used, written;
  const auto touch = [&](uint32_t v, bool write) {
    const Value& value = plan.values[v];
    if (value.storage != Storage::state) return false;
    used.insert(value.at);
    if (write) written.insert(value.at);
    return write;
  };
  for (Step& step : program->steps) {
    const Instr& i = plan.instrs[step.instr];
    if (step.op == StepOp::test) touch(i.cond, false);
    if (step.op == StepOp::copy || step.op == StepOp::read) touch(i.src, false);
    if (step.op == StepOp::copy || step.op == StepOp::fill) step.writes_state = touch(i.dst, true);
    if (step.op != StepOp::launch) continue;
    const BufferParam* params = plan.params.data() + plan.kernels[i.kernel].first_param;
    for (uint32_t k = 0; k < i.num_buffers; ++k) {
      if (touch(plan.buffers(i)[k], params[k].access != Access::read)) step.writes_state = true;
    }
  }
  program->used_states.assign(used.begin(), used.end());
  program->written_states.assign(written.begin(), written.end());
}

}  // namespace

std::string no_graph_reason(const Program& program) {
  size_t num_branches = 0, num_loops = 0;
  const size_t num_reads = program.plan.reads.size();
  for (const Instr& i : program.plan.instrs) {
    num_branches += i.op == InstrOp::branch ? 1 : 0;
    num_loops += i.op == InstrOp::loop ? 1 : 0;
  }
  if (num_branches + num_loops + num_reads == 0) return "";
  if (num_branches + num_loops == 0) {
    return "its plan reads " + std::to_string(num_reads) + (num_reads == 1 ? " size" : " sizes") +
           " that launches before compute";
  }
  return "its plan has " + std::to_string(num_branches) + " if and " + std::to_string(num_loops) +
         " while: the host reads their conditions between launches";
}

Program make_program(Plan plan) {
  Program program;
  program.plan = std::move(plan);
  program.steps.reserve(program.plan.instrs.size());
  Lowering(&program).body(program.plan.body);
  find_states(&program);
  return program;
}

}  // namespace hardtack::rt
