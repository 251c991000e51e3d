// How tensors get to the kernels and back, and how a run is enqueued, recorded and ended.
#include "session.h"

namespace hardtack::rt {
namespace {

constexpr size_t kMaxReplays = 8;  // of a bound shape

}  // namespace

// Whether kernels can work on the tensor where it lies.
bool Session::takes(const ht_tensor& tensor) const {
  const uintptr_t alignment = static_cast<uintptr_t>(device_.pointer_alignment());
  return device_.reaches(tensor.device) && reinterpret_cast<uintptr_t>(tensor_data(tensor)) % alignment == 0;
}

bool Session::own_on_host(const Call& call) const {
  if (!device_.stages_host() || config_.outputs == HT_OUTPUTS_ON_DEVICE) return false;
  if (config_.outputs == HT_OUTPUTS_ON_HOST) return true;
  const size_t num_inputs = model_->programs()[call.entry].plan.inputs.size();
  for (size_t i = 0; i < num_inputs; ++i) {
    if (!is_host(call.inputs[i].device)) return false;
  }
  return true;
}

Block* Session::own_block(const Call& call, size_t output) {
  EntryState& entry = entries_[call.entry];
  return call.own_on_host ? &entry.host_outputs[output] : &entry.outputs[output];
}

Status Session::set_inputs(const Call& call) {
  std::vector<Block>& staged = entries_[call.entry].staged_inputs;
  for (size_t i = 0; i < staged.size(); ++i) {
    const ht_tensor& tensor = call.inputs[i];
    void* data = tensor_data(tensor);
    entries_[call.entry].origins[i] = nullptr;
    if (!takes(tensor)) {
      if (input_port(call, i).value->is_written) entries_[call.entry].origins[i] = data;
      const int64_t nbytes = call.binding->input(i).nbytes;
      HT_RETURN_IF_ERROR(memory_.grow(&staged[i], nbytes, "the device copy of an input"));
      HT_RETURN_IF_ERROR(is_host(tensor.device) ? queue_->send(staged[i].data, data, nbytes)
                                                : queue_->copy(staged[i].data, data, nbytes));
      data = staged[i].data;
    }
    call.binding->set_input(i, data);
  }
  return Status();
}

// Checks the caller's buffers, makes room for the session's own, and hands both to the binding; but of outputs whose sizes
// the run has yet to read, and of those that have a place already.
Status Session::set_outputs(const Call& call) {
  EntryState& entry = entries_[call.entry];
  const size_t num_outputs = entry.outputs.size();
  for (size_t i = 0; i < num_outputs; ++i) {
    if (entry.has_place[i]) continue;
    const BoundPort& bound = call.binding->output(i);
    if (bound.nbytes < 0) {
      HT_RETURN_IF_ERROR(check_unsized(output_port(call, i), is_own(call, i)));
      entry.destinations[i] = nullptr;
      continue;
    }
    if (!is_own(call, i)) {
      const Port port = output_port(call, i);
      HT_RETURN_IF_ERROR(check_form(port, call.outputs[i], device_));
      HT_RETURN_IF_ERROR(check_sizes(port, call.outputs[i], bound.shape, bound.strides));
    }
    HT_RETURN_IF_ERROR(check_apart(call, i));
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    if (entry.has_place[i] || call.binding->output(i).nbytes < 0) continue;
    HT_RETURN_IF_ERROR(set_output(call, i));
    entry.has_place[i] = true;
  }
  return Status();
}

Status Session::set_output(const Call& call, size_t i) {
  EntryState& entry = entries_[call.entry];
  const int64_t nbytes = call.binding->output(i).nbytes;
  ht_tensor& out = call.outputs[i];
  const bool own = is_own(call, i);
  entry.destinations[i] = nullptr;
  if (own) {
    out.data = nullptr;
    Block* block = own_block(call, i);
    HT_RETURN_IF_ERROR(call.own_on_host ? memory_.grow_host(block, nbytes, "an output")
                                        : memory_.grow(block, nbytes, "an output"));
    if (!call.own_on_host) return call.binding->set_output(i, block->data), Status();
    entry.destinations[i] = block->data;
  } else {
    if (takes(out)) return call.binding->set_output(i, tensor_data(out)), Status();
    entry.destinations[i] = tensor_data(out);
  }
  Block& staged = entry.staged_outputs[i];
  HT_RETURN_IF_ERROR(memory_.grow(&staged, nbytes, "the device copy of an output"));
  call.binding->set_output(i, staged.data);
  return Status();
}

// The pointers of this run among those of earlier ones; the one that was not used for longest makes room.
Replay* Session::find_replay(Binding* binding, bool* fresh) {
  std::vector<Replay>& replays = binding->replays;
  binding->io_pointers(&pointers_);
  Replay* found = nullptr;
  for (Replay& replay : replays) {
    if (replay.pointers == pointers_) found = &replay;
  }
  *fresh = found == nullptr;
  if (*fresh && replays.size() < kMaxReplays) {
    replays.emplace_back();
    found = &replays.back();
  } else if (*fresh) {
    found = &replays.front();
    for (Replay& replay : replays) found = replay.last_used < found->last_used ? &replay : found;
    found->recording.reset();
  }
  if (*fresh) found->pointers = pointers_;
  found->last_used = ++tick_;
  return found;
}

class Session::NewSizes : public Sizes {
 public:
  NewSizes(Session* session, Call* call) : session_(session), call_(call) {}
  Status read(int64_t value, const Binding** binding) override {
    HT_RETURN_IF_ERROR(session_->rebind(call_, value));
    *binding = call_->binding;
    return Status();
  }

 private:
  Session* session_;
  Call* call_;
};

Status Session::execute(Call* current, bool* wrote_states) {
  const Call& call = *current;
  const Program& program = model_->programs()[call.entry];
  NewSizes sizes(this, current);
  // What an observer is shown, and the error that it ends with, are of this run alone.
  if (observer_.call != nullptr && queue_->asynchronous()) HT_RETURN_IF_ERROR(synchronize());
  if (observer_.call != nullptr || !entries_[call.entry].recordable) {
    return interpret(program, *call.binding, queue_.get(), observer_, &sizes, wrote_states);
  }
  bool fresh = false;
  Replay* replay = find_replay(call.binding, &fresh);
  if (fresh) return interpret(program, *call.binding, queue_.get(), observer_, &sizes, wrote_states);
  if (replay->recording == nullptr) HT_RETURN_IF_ERROR(record(call, replay));
  *wrote_states = true;
  return in_context(replay->recording->replay(), "entry \"" + std::string(program.plan.entry) + "\"");
}

Status Session::record(const Call& call, Replay* replay) {
  const Program& program = model_->programs()[call.entry];
  HT_RETURN_IF_ERROR(queue_->begin_recording());
  bool wrote_states = false;  // nothing is run
  Status status = interpret(program, *call.binding, queue_.get(), observer_, nullptr, &wrote_states);
  Status ended = queue_->end_recording(status.ok(), &replay->recording);
  return status.ok() ? std::move(ended) : std::move(status);
}

// Enqueues the way of staged outputs and written inputs to their callers, and says whether somebody needs the run's end
// at once.
Status Session::deliver(const Call& call, bool* wait) {
  const EntryState& entry = entries_[call.entry];
  *wait = !queue_->asynchronous();
  const auto send = [&](void* to, bool on_host, const Block& staged, int64_t nbytes) -> Status {
    if (to == nullptr) return Status();
    *wait = *wait || on_host;
    return on_host ? queue_->fetch(to, staged.data, nbytes) : queue_->copy(to, staged.data, nbytes);
  };
  for (size_t i = 0; i < entry.destinations.size(); ++i) {
    const bool on_host = call.outputs[i].data == nullptr || is_host(call.outputs[i].device);
    HT_RETURN_IF_ERROR(send(entry.destinations[i], on_host, entry.staged_outputs[i], call.binding->output(i).nbytes));
  }
  for (size_t i = 0; i < entry.origins.size(); ++i) {
    const bool on_host = is_host(call.inputs[i].device);
    HT_RETURN_IF_ERROR(send(entry.origins[i], on_host, entry.staged_inputs[i], call.binding->input(i).nbytes));
  }
  return Status();
}

// A run that could not be enqueued to its end. What was enqueued before is waited for: nothing writes the caller's memory
// any more, and whether earlier runs left their states whole is known. If one of them failed, that came first.
Status Session::break_off(Status status) {
  Status earlier = synchronize();
  return earlier.ok() ? std::move(status) : std::move(earlier);
}

Status Session::finish(const Call& call, bool wait) {
  Fault fault;
  Status status = wait ? queue_->synchronize(&fault) : queue_->poll(&fault);
  if (!status.ok()) {
    const Plan& plan = model_->programs()[call.entry].plan;
    const size_t num_launches = model_->programs()[call.entry].launches.size();
    status = error(status.code(),
                   "entry \"%s\": %s [one of its %zu launches, or something earlier on the stream; an observer tells "
                   "which]",
                   plan.entry, status.message(), num_launches);
  }
  return report(std::move(status), fault);
}

Status Session::report(Status status, const Fault& fault) const {
  if (!status.ok() || fault.code == HT_KERNEL_OK) return status;
  return kernel_failed(model_->programs()[fault.program], fault.launch, fault.code);
}

Status Session::synchronize() {
  const Entered entered(queue_.get());
  Fault fault;
  Status status = queue_->synchronize(&fault);
  return settle(report(std::move(status), fault), true);
}

Status Session::set_stream(void* stream) {
  const Entered entered(queue_.get());
  return queue_->set_stream(stream);
}

}  // namespace hardtack::rt
