#include "interpreter.h"

#include <chrono>

namespace hardtack::rt {
namespace {

using Clock = std::chrono::steady_clock;

const char* op_name(const Program& program, const Step& step) {
  switch (step.op) {
    case StepOp::launch: return "launch";
    case StepOp::copy: return "copy";
    case StepOp::fill: return "fill";
    case StepOp::test:
    case StepOp::jump: break;
  }
  return program.plan.instrs[step.instr].op == InstrOp::branch ? "if" : "while";
}

Status kernel_failed(const Program& program, const Step& step, int32_t code) {
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  const Origin& origin = plan.origins[instr.origin];
  std::string place = origin.file;
  if (!place.empty()) place += ":" + std::to_string(origin.line);
  if (origin.op[0] != '\0') place += (place.empty() ? "" : ", ") + std::string(origin.op);
  if (!place.empty()) place = " (" + place + ")";
  const char* kernel = plan.kernels[instr.kernel].name;
  if (code == HT_KERNEL_INDEX_OUT_OF_RANGE || code == HT_KERNEL_ASSERT) {
    return error(HT_KERNEL, "entry \"%s\", instruction %u%s: %s [kernel %s]", plan.entry, step.number, place.c_str(),
                 code == HT_KERNEL_ASSERT ? "an assertion of the model failed" : "an index is out of range", kernel);
  }
  return error(HT_KERNEL, "entry \"%s\", instruction %u%s: kernel %s is broken, it returned %d", plan.entry,
               step.number, place.c_str(), kernel, code);
}

// The values that a step wrote, or the condition it read.
void step_values(const Program& program, const Step& step, std::vector<uint32_t>* values) {
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  if (step.op == StepOp::copy || step.op == StepOp::fill) return values->push_back(instr.dst);
  if (step.op == StepOp::test) return values->push_back(instr.cond);
  const BufferParam* params = plan.params.data() + plan.kernels[instr.kernel].first_param;
  for (uint32_t k = 0; k < instr.num_buffers; ++k) {
    if (params[k].access != Access::read) values->push_back(plan.buffers(instr)[k]);
  }
}

Status observe(const Program& program, const Binding& binding, const Device& device, const Observer& observer,
               const Step& step, Clock::time_point start) {
  const Plan& plan = program.plan;
  ht_step out = {};
  out.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  std::vector<uint32_t> values;
  step_values(program, step, &values);
  std::vector<const char*> names;
  std::vector<ht_tensor> tensors;
  for (const uint32_t index : values) {
    const Value& v = plan.values[index];
    const BoundPort dims = binding.dims(index);
    ht_tensor t = {};
    t.data = binding.value(index);
    t.device = device.dl_device();
    t.ndim = static_cast<int32_t>(v.ndim);
    t.dtype = dl_dtype(v.dtype);
    t.shape = const_cast<int64_t*>(dims.shape);
    t.strides = const_cast<int64_t*>(dims.strides);
    names.push_back(v.name);
    tensors.push_back(t);
  }
  const Instr& instr = plan.instrs[step.instr];
  const Origin& origin = plan.origins[instr.origin];
  out.entry = plan.entry;
  out.index = step.number;
  out.op = op_name(program, step);
  out.kernel = step.op == StepOp::launch ? plan.kernels[instr.kernel].name : nullptr;
  out.num_values = values.size();
  out.names = names.data();
  out.tensors = tensors.data();
  out.file = origin.file;
  out.line = origin.line;
  out.source_op = origin.op;
  out.module = origin.module;
  out.source = origin.source;
  if (observer.call(observer.user, &out) == 0) return Status();
  return error(HT_CANCELLED, "entry \"%s\": the observer stopped the run after instruction %u", plan.entry,
               step.number);
}

}  // namespace

Status interpret(const Program& program, const Binding& binding, const Device& device, const Observer& observer) {
  const Step* steps = program.steps.data();
  const Instr* instrs = program.plan.instrs.data();
  Launches& launches = binding.launches();
  const size_t num_steps = program.steps.size();
  for (size_t pc = 0; pc < num_steps;) {
    const Step& step = steps[pc];
    const Instr& instr = instrs[step.instr];
    const Clock::time_point start = observer.call == nullptr ? Clock::time_point() : Clock::now();
    size_t next = pc + 1;
    switch (step.op) {
      case StepOp::launch:
        if (const int32_t code = launches.run(step.ordinal)) return kernel_failed(program, step, code);
        break;
      case StepOp::copy:
        device.copy(binding.value(instr.dst), binding.value(instr.src), binding.move_layout(step.ordinal));
        break;
      case StepOp::fill: device.fill(binding.value(instr.dst), instr.bits, binding.move_layout(step.ordinal)); break;
      case StepOp::test: {
        uint8_t holds = 0;
        device.read(&holds, binding.value(instr.cond), 1);
        if (holds == 0) next = step.target;
        break;
      }
      case StepOp::jump: pc = step.target; continue;
    }
    if (observer.call != nullptr) HT_RETURN_IF_ERROR(observe(program, binding, device, observer, step, start));
    pc = next;
  }
  return Status();
}

}  // namespace hardtack::rt
