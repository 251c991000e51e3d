#include "interpreter.h"

#include <chrono>

#include "contract.h"

namespace hardtack::rt {
namespace {

using Clock = std::chrono::steady_clock;

const char* op_name(const Program& program, const Step& step) {
  switch (step.op) {
    case StepOp::launch: return "launch";
    case StepOp::copy: return "copy";
    case StepOp::fill: return "fill";
    case StepOp::read: return "read";
    case StepOp::test:
    case StepOp::jump: break;
  }
  return program.plan.instrs[step.instr].op == InstrOp::branch ? "if" : "while";
}

// " (model.py:12, aten.add)", or what of it is known.
std::string place_of(const Origin& origin) {
  std::string place = origin.file;
  if (!place.empty()) place += ":" + std::to_string(origin.line);
  if (*origin.op != '\0') place += (place.empty() ? "" : ", ") + std::string(origin.op);
  return place.empty() ? place : " (" + place + ")";
}

Status step_failed(const Program& program, const Step& step, int32_t code) {
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  const Origin& origin = plan.origins[instr.origin];
  const std::string place = place_of(origin);
  const char* kernel = plan.kernels[instr.kernel].name;
  if (code == HT_KERNEL_INDEX_OUT_OF_RANGE || code == HT_KERNEL_ASSERT) {
    return error(HT_KERNEL, "entry \"%s\", instruction %u%s: %s [kernel %s]", plan.entry, step.number, place.c_str(),
                 code == HT_KERNEL_ASSERT ? "an assertion of the model failed" : "an index is out of range", kernel);
  }
  return error(HT_KERNEL, "entry \"%s\", instruction %u%s: kernel %s is broken, it returned %d", plan.entry,
               step.number, place.c_str(), kernel, code);
}

// What went wrong on the device while the step was enqueued, or, with an observer, while it ran.
Status in_step(Status status, const Program& program, const Step& step) {
  if (status.ok()) return status;
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  const Origin& origin = plan.origins[instr.origin];
  const char* what = step.op == StepOp::launch ? plan.kernels[instr.kernel].name : op_name(program, step);
  return error(status.code(), "entry \"%s\", instruction %u%s [%s]: %s", plan.entry, step.number,
               place_of(origin).c_str(), what, status.message());
}

// The values that a step wrote, or the condition it read.
void step_values(const Program& program, const Step& step, std::vector<uint32_t>* values) {
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  if (step.op == StepOp::copy || step.op == StepOp::fill) return values->push_back(instr.dst);
  if (step.op == StepOp::test) return values->push_back(instr.cond);
  if (step.op == StepOp::read) return values->push_back(instr.src);
  const BufferParam* params = plan.params.data() + plan.kernels[instr.kernel].first_param;
  for (uint32_t k = 0; k < instr.num_buffers; ++k) {
    if (params[k].access != Access::read) values->push_back(plan.buffers(instr)[k]);
  }
}

Status interrupted(const Program& program, const Step& step) {
  return error(HT_CANCELLED, "entry \"%s\": the run was interrupted before instruction %u", program.plan.entry,
               step.number);
}

// The value that a symbol takes, which lies in its range.
Status read_size(const Program& program, const Step& step, const Binding& binding, Queue* queue, int64_t* value) {
  const Plan& plan = program.plan;
  const Instr& instr = plan.instrs[step.instr];
  HT_RETURN_IF_ERROR(in_step(queue->read(value, binding.value(instr.src), sizeof *value), program, step));
  const PlanSym& sym = plan.syms[instr.sym];
  if (*value >= sym.lo && *value <= sym.hi) return Status();
  return error(HT_KERNEL, "entry \"%s\", instruction %u%s: the size %s is %lld, expected %s", plan.entry, step.number,
               place_of(plan.origins[instr.origin]).c_str(), sym.name, static_cast<long long>(*value),
               range_text(sym).c_str());
}

class Observed {
 public:
  Observed(const Program& program, const Binding& binding, Queue* queue, const Observer& observer)
      : program_(program), binding_(&binding), queue_(*queue), observer_(observer) {}

  void go_on_with(const Binding& binding) { binding_ = &binding; }

  bool active() const { return observer_.call != nullptr; }
  void start() {
    if (active()) start_ = Clock::now();
  }

  Status end(const Step& step) {
    Fault fault;
    HT_RETURN_IF_ERROR(in_step(queue_.synchronize(&fault), program_, step));
    if (fault.code != HT_KERNEL_OK) return kernel_failed(program_, fault.launch, fault.code);
    ht_step out = {};
    out.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
    std::vector<uint32_t> values;
    step_values(program_, step, &values);
    std::vector<const char*> names;
    std::vector<ht_tensor> tensors;
    std::vector<std::vector<char>> copies;
    for (const uint32_t index : values) {
      names.push_back(program_.plan.values[index].name);
      tensors.push_back(tensor(index));
      if (queue_.follows_pointers()) continue;
      copies.emplace_back(static_cast<size_t>(binding_->nbytes(index)) + 1);
      HT_RETURN_IF_ERROR(queue_.read(copies.back().data(), tensors.back().data, binding_->nbytes(index)));
      tensors.back().data = copies.back().data();
    }
    out.num_values = values.size();
    out.names = names.data();
    out.tensors = tensors.data();
    return show(step, &out);
  }

 private:
  ht_tensor tensor(uint32_t index) const {
    const Value& v = program_.plan.values[index];
    const BoundPort dims = binding_->dims(index);
    ht_tensor t = {};
    t.data = binding_->value(index);
    t.device.device_type = static_cast<decltype(t.device.device_type)>(1);
    t.ndim = static_cast<int32_t>(v.ndim);
    t.dtype = dl_dtype(v.dtype);
    t.shape = const_cast<int64_t*>(dims.shape);
    t.strides = const_cast<int64_t*>(dims.strides);
    return t;
  }

  Status show(const Step& step, ht_step* out) const {
    const Plan& plan = program_.plan;
    const Instr& instr = plan.instrs[step.instr];
    const Origin& origin = plan.origins[instr.origin];
    out->entry = plan.entry;
    out->index = step.number;
    out->op = op_name(program_, step);
    out->kernel = step.op == StepOp::launch ? plan.kernels[instr.kernel].name : nullptr;
    out->file = origin.file;
    out->line = origin.line;
    out->source_op = origin.op;
    out->module = origin.module;
    out->source = origin.source;
    if (observer_.call(observer_.user, out) == 0) return Status();
    return error(HT_CANCELLED, "entry \"%s\": the observer stopped the run after instruction %u", plan.entry,
                 step.number);
  }

  const Program& program_;
  const Binding* binding_;
  Queue& queue_;
  const Observer& observer_;
  Clock::time_point start_;
};

}  // namespace

Status kernel_failed(const Program& program, uint32_t launch, int32_t code) {
  for (const Step& step : program.steps) {
    if (step.op == StepOp::launch && step.ordinal == launch) return step_failed(program, step, code);
  }
  return error(HT_KERNEL, "entry \"%s\": a kernel is broken, it reported launch %u, which there is not",
               program.plan.entry, launch);
}

Status interpret(const Program& program, const Binding& binding, Queue* queue, const Observer& observer, Sizes* sizes,
                 bool* wrote_states) {
  const Step* steps = program.steps.data();
  const Instr* instrs = program.plan.instrs.data();
  const Binding* bound = &binding;
  Observed observed(program, binding, queue, observer);
  const size_t num_steps = program.steps.size();
  for (size_t pc = 0; pc < num_steps;) {
    const Step& step = steps[pc];
    const Instr& instr = instrs[step.instr];
    size_t next = pc + 1;
    observed.start();
    switch (step.op) {
      case StepOp::launch: {
        if (observer.stopped()) return interrupted(program, step);
        *wrote_states = *wrote_states || step.writes_state;
        int32_t code = HT_KERNEL_OK;
        Status status = bound->launches().run(step.ordinal, &code);
        if (!status.ok()) return in_step(std::move(status), program, step);
        if (code != HT_KERNEL_OK) return step_failed(program, step, code);
        break;
      }
      case StepOp::copy: {
        *wrote_states = *wrote_states || step.writes_state;
        Status status = queue->copy(bound->value(instr.dst), bound->value(instr.src), bound->nbytes(instr.dst));
        if (!status.ok()) return in_step(std::move(status), program, step);
        break;
      }
      case StepOp::fill: {
        *wrote_states = *wrote_states || step.writes_state;
        const int64_t unit = itemsize(program.plan.values[instr.dst].dtype);
        Status status = queue->fill(bound->value(instr.dst), instr.bits, unit, bound->nbytes(instr.dst));
        if (!status.ok()) return in_step(std::move(status), program, step);
        break;
      }
      case StepOp::test: {
        uint8_t holds = 0;
        Status status = queue->read(&holds, bound->value(instr.cond), 1);
        if (!status.ok()) return in_step(std::move(status), program, step);
        if (holds == 0) next = step.target;
        break;
      }
      case StepOp::read: {
        if (observer.stopped()) return interrupted(program, step);
        int64_t value = 0;
        HT_RETURN_IF_ERROR(read_size(program, step, *bound, queue, &value));
        HT_RETURN_IF_ERROR(sizes->read(value, &bound));
        observed.go_on_with(*bound);
        break;
      }
      case StepOp::jump:
        if (observer.stopped()) return interrupted(program, step);
        pc = step.target;
        continue;
    }
    if (observed.active()) HT_RETURN_IF_ERROR(observed.end(step));
    pc = next;
  }
  return Status();
}

}  // namespace hardtack::rt
