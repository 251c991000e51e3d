#include "session.h"

#include <cstring>
#include <exception>
#include <new>

#include "checked.h"

namespace hardtack::rt {
namespace {

// What beside an entry's run may leave a state half written.
constexpr char kReset[] = "a reset";
constexpr char kWrite[] = "a write";

}  // namespace

Session::Session(std::shared_ptr<const Model> model, SessionConfig config, std::unique_ptr<Queue> queue)
    : model_(std::move(model)),
      config_(std::move(config)),
      device_(*model_->device()),
      queue_(std::move(queue)),
      memory_(queue_.get(), device_.memory_alignment(), config_.allocator, config_.max_nbytes),
      entries_(model_->programs().size()),
      states_(model_->manifest().states.size()),
      state_data_(states_.size()),
      unsettled_(states_.size()),
      torn_(states_.size()) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Program& program = model_->programs()[i];
    const Plan& plan = program.plan;
    EntryState& entry = entries_[i];
    for (auto* blocks : {&entry.outputs, &entry.host_outputs, &entry.staged_outputs})
      blocks->resize(plan.outputs.size());
    entry.staged_inputs.resize(plan.inputs.size());
    entry.origins.resize(plan.inputs.size());
    entry.destinations.resize(plan.outputs.size());
    entry.own.resize(plan.outputs.size());
    for (size_t k = 0; k < plan.outputs.size(); ++k) {
      entry.own[k].dims.resize(2 * port_ndim(plan.values[plan.outputs[k]]) + 1);
    }
    entry.recordable = config_.graphs && queue_->can_record() && no_graph_reason(program).empty();
  }
}

Session::~Session() {
  trim();
  const Entered entered(queue_.get());
  for (Block& block : states_) memory_.release(&block);
}

Status Session::create(std::shared_ptr<const Model> model, SessionConfig config, std::unique_ptr<Session>* session) {
  if (model->device() == nullptr) {
    return error(HT_INVALID_ARGUMENT, "the model was loaded with inspect_only: it has no native code to run");
  }
  std::unique_ptr<Queue> queue;
  HT_RETURN_IF_ERROR(model->device()->open_queue({config.parallel, config.stream, config.asynchronous}, &queue));
  std::unique_ptr<Session> created(new Session(std::move(model), std::move(config), std::move(queue)));
  HT_RETURN_IF_ERROR(created->init_states());
  *session = std::move(created);
  return Status();
}

Status Session::init_states() {
  const Entered entered(queue_.get());
  const Manifest& manifest = model_->manifest();
  for (size_t i = 0; i < states_.size(); ++i) {
    const ManifestArray& state = manifest.states[i];
    HT_RETURN_IF_ERROR(memory_.grow(&states_[i], state.nbytes, "a state"));
    state_data_[i] = states_[i].data;
  }
  return reset();
}

Status Session::reset() {
  const Entered entered(queue_.get());
  const Manifest& manifest = model_->manifest();
  torn_.assign(states_.size(), kReset);  // until all are written: between two of them they are of different times
  for (size_t i = 0; i < states_.size(); ++i) {
    const ManifestArray& state = manifest.states[i];
    if (state.init == nullptr) {
      HT_RETURN_IF_ERROR(queue_->zero(states_[i].data, state.nbytes));
      continue;
    }
    // Constants lie in the device's memory, states too: a plain copy of bytes.
    const void* init = device_.constant(static_cast<size_t>(manifest.find_constant(state.init)));
    HT_RETURN_IF_ERROR(queue_->copy(states_[i].data, init, state.nbytes));
  }
  unsettled_.assign(states_.size(), nullptr);
  torn_.assign(states_.size(), nullptr);
  return Status();
}

Status Session::state_error(size_t state, const char* entry) const {
  const char* writer = torn_[state];
  const bool by_run = writer != kReset && writer != kWrite;
  return error(HT_STATES, "%sstate \"%s\" is half written: %s failed; reset the session, or write every state that is",
               entry == nullptr ? "" : ("entry \"" + std::string(entry) + "\": ").c_str(),
               model_->manifest().states[state].name,
               by_run ? ("a run of entry \"" + std::string(writer) + "\"").c_str() : writer);
}

// Whether the states that the entry uses are what whole runs made of them.
Status Session::check_states(const Call& call) const {
  const Program& program = model_->programs()[call.entry];
  for (const uint32_t state : program.used_states) {
    if (torn_[state] != nullptr) return state_error(state, program.plan.entry);
  }
  return Status();
}

void Session::mark_states(const Call& call, std::vector<const char*>* states) const {
  const Program& program = model_->programs()[call.entry];
  for (const uint32_t state : program.written_states) (*states)[state] = program.plan.entry;
}

// What the device said of the runs that it was given: where one failed, what they were writing is torn. `waited`:
// nothing is under way any more.
void Session::settle_states(bool whole, bool waited) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!whole && unsettled_[i] != nullptr) torn_[i] = unsettled_[i];
    if (!whole || waited) unsettled_[i] = nullptr;
  }
}

Status Session::settle(Status status, bool waited) {
  settle_states(status.ok(), waited);
  return status;
}

Port Session::input_port(const Call& call, size_t i) const {
  const ManifestEntry& entry = model_->manifest().entries[call.entry];
  const Plan& plan = model_->programs()[call.entry].plan;
  return {"input", static_cast<uint32_t>(i), entry.name, &plan.values[plan.inputs[i]], &entry.inputs[i]};
}

Port Session::output_port(const Call& call, size_t i) const {
  const ManifestEntry& entry = model_->manifest().entries[call.entry];
  const Plan& plan = model_->programs()[call.entry].plan;
  return {"output", static_cast<uint32_t>(i), entry.name, &plan.values[plan.outputs[i]], &entry.outputs[i]};
}

// Everything up to a binding whose contract the inputs meet.
Status Session::start(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs,
                      size_t num_outputs, Call* call) {
  HT_RETURN_IF_ERROR(model_->find_entry(entry, &call->entry));
  const Plan& plan = model_->programs()[call->entry].plan;
  const auto count = [&plan](const char* what, size_t expected, size_t given) {
    return error(HT_CONTRACT, "entry \"%s\" has %zu %s%s, %zu given", plan.entry, expected, what,
                 expected == 1 ? "" : "s", given);
  };
  if (num_inputs != plan.inputs.size()) return count("input", plan.inputs.size(), num_inputs);
  if (num_outputs != plan.outputs.size()) return count("output", plan.outputs.size(), num_outputs);
  if ((inputs == nullptr && num_inputs > 0) || (outputs == nullptr && num_outputs > 0)) {
    return error(HT_INVALID_ARGUMENT, "entry \"%s\": inputs or outputs is a null pointer", plan.entry);
  }
  call->inputs = inputs;
  call->outputs = outputs;
  for (size_t i = 0; i < num_inputs; ++i) HT_RETURN_IF_ERROR(check_form(input_port(*call, i), inputs[i], device_));
  call->own_on_host = own_on_host(*call);
  EntryState& state = entries_[call->entry];
  state.syms.resize(plan.num_input_syms);
  state.has_place.assign(plan.outputs.size(), false);
  for (size_t s = 0; s < plan.num_input_syms; ++s) {
    const PlanSym& sym = plan.syms[s];
    HT_RETURN_IF_ERROR(read_sym(sym, input_port(*call, sym.input), inputs[sym.input], queue_.get(), &state.syms[s]));
  }
  HT_RETURN_IF_ERROR(find_binding(call));
  call->first = call->binding;
  return check_written(*call);
}

// An input that is written shares no byte with another one: kernels count on that. Outputs are apart from all inputs.
Status Session::check_written(const Call& call) const {
  const ManifestEntry& entry = model_->manifest().entries[call.entry];
  const auto at = [&](size_t i) { return reinterpret_cast<uintptr_t>(tensor_data(call.inputs[i])); };
  const auto nbytes = [&](size_t i) { return static_cast<uint64_t>(call.binding->input(i).nbytes); };
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    for (size_t k = 0; entry.inputs[i].written && k < entry.inputs.size(); ++k) {
      if (k == i || !ranges_overlap(at(i), nbytes(i), at(k), nbytes(k))) continue;
      return error(HT_CONTRACT,
                   "input \"%s\" (%zu of entry \"%s\"), which the run writes to, shares memory with input \"%s\"",
                   entry.inputs[i].name, i, entry.name, entry.inputs[k].name);
    }
  }
  return Status();
}

Status Session::find_binding(Call* call) {
  EntryState& state = entries_[call->entry];
  for (const std::unique_ptr<Binding>& binding : state.bindings) {
    if (binding->syms() != state.syms) continue;
    HT_RETURN_IF_ERROR(check_inputs(*call, *binding));
    call->binding = binding.get();
    binding->last_used = ++tick_;
    return Status();
  }
  const Program& program = model_->programs()[call->entry];
  std::unique_ptr<Binding> binding;
  HT_RETURN_IF_ERROR(Binding::create(program, state.syms, &binding));
  HT_RETURN_IF_ERROR(check_inputs(*call, *binding));
  HT_RETURN_IF_ERROR(check_guards(program, state.syms, binding->exprs()));
  HT_RETURN_IF_ERROR(binding->prepare(queue_.get(), call->entry));
  if (state.bindings.size() >= config_.max_cached_shapes) evict(&state, call->first);
  binding->last_used = ++tick_;
  call->binding = binding.get();
  state.bindings.push_back(std::move(binding));
  return Status();
}

Status Session::check_inputs(const Call& call, const Binding& binding) const {
  const size_t num_inputs = model_->programs()[call.entry].plan.inputs.size();
  for (size_t i = 0; i < num_inputs; ++i) {
    const BoundPort& bound = binding.input(i);
    HT_RETURN_IF_ERROR(check_sizes(input_port(call, i), call.inputs[i], bound.shape, bound.strides));
  }
  return Status();
}

// One more size is known: from here on the call's binding has it. Memory and pointers of what has been written stay.
Status Session::rebind(Call* call, int64_t size) {
  Binding* before = call->binding;
  const Plan& plan = model_->programs()[call->entry].plan;
  EntryState& state = entries_[call->entry];
  std::vector<void*> inputs, outputs;
  for (const uint32_t v : plan.inputs) inputs.push_back(before->value(v));
  for (const uint32_t v : plan.outputs) outputs.push_back(before->value(v));
  const int64_t kept_nbytes = before->arena_nbytes();
  state.syms.push_back(size);
  HT_RETURN_IF_ERROR(find_binding(call));  // which may have dropped the binding before
  HT_RETURN_IF_ERROR(ensure_memory(*call, kept_nbytes));
  for (size_t i = 0; i < inputs.size(); ++i) call->binding->set_input(i, inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (state.has_place[i]) call->binding->set_output(i, outputs[i]);
  }
  HT_RETURN_IF_ERROR(set_outputs(*call));
  return call->binding->patch_slots();
}

// The binding that was not used for longest makes room, other than `kept`.
void Session::evict(EntryState* entry, const Binding* kept) {
  size_t oldest = entry->bindings.size();
  for (size_t i = 0; i < entry->bindings.size(); ++i) {
    if (entry->bindings[i].get() == kept) continue;
    if (oldest == entry->bindings.size() || entry->bindings[i]->last_used < entry->bindings[oldest]->last_used)
      oldest = i;
  }
  if (oldest == entry->bindings.size()) return;
  entry->bindings.erase(entry->bindings.begin() + static_cast<std::ptrdiff_t>(oldest));
}

// Room for `nbytes`, the first `kept_nbytes` of which stay as they are.
Status Session::grow_arena(int64_t nbytes, int64_t kept_nbytes) {
  if (kept_nbytes == 0 || nbytes <= arena_.capacity) return memory_.grow(&arena_, nbytes, "the arena");
  Block larger;
  HT_RETURN_IF_ERROR(memory_.grow(&larger, nbytes, "the arena"));
  Status copied = queue_->copy(larger.data, arena_.data, kept_nbytes);
  std::swap(arena_, larger);
  memory_.release(&larger);
  return copied;
}

Status Session::ensure_memory(const Call& call, int64_t kept_nbytes) {
  Binding& binding = *call.binding;
  const void* arena_before = arena_.data;
  const void* workspace_before = workspace_.data;
  Status grown = grow_arena(binding.arena_nbytes(), kept_nbytes);
  if (grown.ok()) grown = memory_.grow(&workspace_, binding.workspace_nbytes(), "the workspace");
  if (arena_.data != arena_before || workspace_.data != workspace_before) ++generation_;
  if (!grown.ok()) return grown;
  if (!binding.placed(generation_)) {
    binding.place(device_, arena_.data, workspace_.data, state_data_.data(), generation_);
  }
  return Status();
}

// Whether the output goes into the session's buffer: none is given, or what an earlier run returned (which may have
// been freed since: it is only compared).
bool Session::is_own(const Call& call, size_t i) const {
  const ht_tensor& out = call.outputs[i];
  const OwnOutput& own = entries_[call.entry].own[i];
  return out.data == nullptr || (out.data == own.data && out.shape == own.dims.data());
}

// An output shares no byte with an input or an earlier output, or one that had its place before. The session's own
// buffers count with all they hold, also before they grow: an input that lies there is the result of an earlier run.
Status Session::check_apart(const Call& call, size_t output) {
  const auto range = [&](size_t i, uint64_t* at, uint64_t* nbytes) {
    const bool mine = is_own(call, i);
    const Block& own = *own_block(call, i);
    *at = reinterpret_cast<uintptr_t>(mine ? own.data : tensor_data(call.outputs[i]));
    *nbytes = static_cast<uint64_t>(mine ? own.capacity : call.binding->output(i).nbytes);
  };
  uint64_t at = 0, nbytes = 0;
  range(output, &at, &nbytes);
  const ManifestEntry& entry = model_->manifest().entries[call.entry];
  const char* name = entry.outputs[output].name;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const uint64_t input = reinterpret_cast<uintptr_t>(tensor_data(call.inputs[i]));
    if (!ranges_overlap(at, nbytes, input, static_cast<uint64_t>(call.binding->input(i).nbytes))) continue;
    return error(HT_CONTRACT, "output \"%s\" (%zu of entry \"%s\") shares memory with input \"%s\"%s", name, output,
                 entry.name, entry.inputs[i].name,
                 is_own(call, output) ? ": copy what an earlier run returned, or give outputs of your own" : "");
  }
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    if (i == output || (i > output && !entries_[call.entry].has_place[i]) || call.binding->output(i).nbytes < 0)
      continue;
    uint64_t other = 0, other_nbytes = 0;
    range(i, &other, &other_nbytes);
    if (!ranges_overlap(at, nbytes, other, other_nbytes)) continue;
    return error(HT_CONTRACT, "output \"%s\" (%zu of entry \"%s\") shares memory with output \"%s\"", name, output,
                 entry.name, entry.outputs[i].name);
  }
  return Status();
}

void Session::fill_form(const Value& value, bool on_host, ht_tensor* out) const {
  out->device = {};
  out->device.device_type = static_cast<decltype(out->device.device_type)>(1);
  if (!on_host) out->device = device_.dl_device();
  out->ndim = static_cast<int32_t>(port_ndim(value));
  out->dtype = dl_dtype(port_dtype(value));
}

void Session::return_own(const Call& call, size_t i) {
  const Value& v = *output_port(call, i).value;
  const BoundPort& bound = call.binding->output(i);
  OwnOutput& own = entries_[call.entry].own[i];
  own.data = own_block(call, i)->data;
  const uint32_t ndim = port_ndim(v);
  for (uint32_t d = 0; d < ndim; ++d) {
    own.dims[d] = bound.shape[d];
    own.dims[ndim + d] = bound.strides[d];
  }
  ht_tensor& out = call.outputs[i];
  fill_form(v, call.own_on_host, &out);
  out.shape = own.dims.data();
  out.strides = own.dims.data() + ndim;
  out.data = own.data;
  out.byte_offset = 0;
}

Status Session::bind(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs,
                     size_t num_outputs) {
  const Entered entered(queue_.get());
  Call call;
  HT_RETURN_IF_ERROR(start(entry, inputs, num_inputs, outputs, num_outputs, &call));
  HT_RETURN_IF_ERROR(ensure_memory(call));
  for (size_t i = 0; i < num_outputs; ++i) {
    fill_form(*output_port(call, i).value, call.own_on_host, &outputs[i]);
    outputs[i].shape = const_cast<int64_t*>(call.binding->output(i).shape);
    outputs[i].strides = const_cast<int64_t*>(call.binding->output(i).strides);
  }
  return Status();
}

// A run that ends before its end, by an error or because memory fails on the way, leaves torn what it wrote. Behind an
// exception nobody has waited for the device, which may still write the caller's memory.
class Session::Unfinished {
 public:
  Unfinished(Session* session, const Call& call) : session_(session), call_(call) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (std::uncaught_exceptions() > 0) wait();
    if (wrote_states) session_->mark_states(call_, &session_->torn_);
  }

  bool wrote_states = false;

 private:
  // Without a word of what failed there: there is no memory for one.
  void wait() const {
    bool whole = false;
    try {
      Fault fault;
      whole = session_->queue_->synchronize(&fault).ok() && fault.code == HT_KERNEL_OK;
    } catch (const std::bad_alloc&) {
      whole = false;
    }
    session_->settle_states(whole, true);
  }

  Session* session_;
  const Call& call_;
};

Status Session::run(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs,
                    size_t num_outputs) {
  const Entered entered(queue_.get());
  interrupted_.store(false, std::memory_order_relaxed);
  Call call;
  HT_RETURN_IF_ERROR(start(entry, inputs, num_inputs, outputs, num_outputs, &call));
  HT_RETURN_IF_ERROR(check_states(call));
  HT_RETURN_IF_ERROR(ensure_memory(call));
  HT_RETURN_IF_ERROR(set_outputs(call));
  HT_RETURN_IF_ERROR(set_inputs(call));
  HT_RETURN_IF_ERROR(call.binding->patch_slots());
  bool wait = false;
  Unfinished unfinished(this, call);
  Status status = execute(&call, &unfinished.wrote_states);
  if (status.ok()) status = deliver(call, &wait);
  if (!status.ok()) return break_off(std::move(status));
  if (unfinished.wrote_states) mark_states(call, &unsettled_);
  HT_RETURN_IF_ERROR(settle(finish(call, wait), wait));
  unfinished.wrote_states = false;
  for (size_t i = 0; i < num_outputs; ++i) {
    if (outputs[i].data == nullptr) return_own(call, i);
  }
  return Status();
}

Status Session::find_state(const char* name, size_t nbytes, size_t* state) const {
  const int at = name == nullptr ? -1 : model_->manifest().find_state(name);
  if (at < 0) return error(HT_INVALID_ARGUMENT, "no state \"%s\"", name == nullptr ? "" : name);
  *state = static_cast<size_t>(at);
  const int64_t expected = model_->manifest().states[*state].nbytes;
  if (nbytes == static_cast<size_t>(expected)) return Status();
  return error(HT_CONTRACT, "state \"%s\" has %lld bytes, %zu given", name, static_cast<long long>(expected), nbytes);
}

Status Session::read_state(const char* name, void* data, size_t nbytes) {
  size_t state = 0;
  HT_RETURN_IF_ERROR(find_state(name, nbytes, &state));
  HT_RETURN_IF_ERROR(synchronize());
  if (torn_[state] != nullptr) return state_error(state, nullptr);
  const Entered entered(queue_.get());
  return queue_->read(data, states_[state].data, static_cast<int64_t>(nbytes));
}

Status Session::write_state(const char* name, const void* data, size_t nbytes) {
  size_t state = 0;
  HT_RETURN_IF_ERROR(find_state(name, nbytes, &state));
  const Entered entered(queue_.get());
  torn_[state] = kWrite;
  HT_RETURN_IF_ERROR(queue_->write(states_[state].data, data, static_cast<int64_t>(nbytes)));
  unsettled_[state] = torn_[state] = nullptr;
  return Status();
}

void Session::trim() {
  const Entered entered(queue_.get());
  for (EntryState& entry : entries_) {
    entry.bindings.clear();
    for (auto* blocks : {&entry.outputs, &entry.staged_inputs, &entry.staged_outputs}) {
      for (Block& block : *blocks) memory_.release(&block);
    }
    for (Block& block : entry.host_outputs) memory_.release_host(&block);
  }
  memory_.release(&arena_);
  memory_.release(&workspace_);
  ++generation_;
}

void Session::memory(ht_memory_info* info) const {
  const auto sum = [](const std::vector<Block>& blocks) {
    uint64_t total = 0;
    for (const Block& block : blocks) total += static_cast<uint64_t>(block.capacity);
    return total;
  };
  info->arena_nbytes = static_cast<uint64_t>(arena_.capacity);
  info->workspace_nbytes = static_cast<uint64_t>(workspace_.capacity);
  info->states_nbytes = sum(states_);
  for (const EntryState& entry : entries_) {
    info->outputs_nbytes += sum(entry.outputs);
    info->staging_nbytes += sum(entry.host_outputs) + sum(entry.staged_inputs) + sum(entry.staged_outputs);
    info->num_cached_shapes += entry.bindings.size();
    for (const std::unique_ptr<Binding>& binding : entry.bindings) {
      for (const Replay& replay : binding->replays) info->num_graphs += replay.recording == nullptr ? 0 : 1;
    }
  }
}

}  // namespace hardtack::rt
