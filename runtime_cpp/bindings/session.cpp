#include "session.h"

#include <utility>
#include <vector>

namespace hardtack::py_binding {

PySession::PySession(ModelHandle model, ht_pool* pool, const SessionSpec& spec)
    : model_(std::move(model)), observer_(py::none()) {
  ht_session_options options = ht_session_options_default();
  options.pool = pool;
  options.max_nbytes = spec.max_nbytes;
  options.stream = reinterpret_cast<void*>(spec.stream);
  options.asynchronous = spec.asynchronous;
  options.graphs = spec.graphs ? HT_GRAPHS_AUTO : HT_GRAPHS_OFF;
  options.outputs = static_cast<ht_outputs>(spec.outputs);
  ht_session* session = nullptr;
  check(ht_session_create(model_.get(), &options, &session));
  session_.reset(session);
  may_follow_ = spec.stream == 0 && ht_session_stream(session) != nullptr;
}

PySession::~PySession() { blocks_->close(); }

py::tuple PySession::run(size_t entry, py::handle leaves, const py::object& again) {
  const ht_entry_info* info = ht_model_entry(model_.get(), entry);
  if (info == nullptr) throw py::index_error("no entry point of this number");
  if (running_) throw SessionBusy();
  Inputs inputs(leaves, model_.get(), entry);
  inputs.read_torch(may_follow_);
  const ht_tensor* on_device = inputs.torch_on_device();
  if (on_device != nullptr) follow(inputs.torch()->current_stream(on_device->device));
  inputs.read_others(ht_session_stream(session_.get()));
  Outputs outputs(info->num_outputs, model_, blocks_);
  check(ht_session_bind(session_.get(), info->name, inputs.data(), inputs.size(), outputs.data(), outputs.size()));
  if (again.is_none())
    outputs.allocate(inputs.torch(), on_device != nullptr);
  else
    outputs.reuse(again.cast<py::sequence>());
  ht_status* failed = nullptr;
  running_ = true;
  {
    const py::gil_scoped_release unlocked;
    failed = ht_session_run(session_.get(), info->name, inputs.data(), inputs.size(), outputs.data(), outputs.size());
  }
  running_ = false;
  inputs.note_writes();
  if (observer_error_) {
    ht_status_free(failed);
    std::rethrow_exception(std::exchange(observer_error_, nullptr));
  }
  check(failed);
  outputs.copy_found(inputs.torch());
  return outputs.release();
}

void PySession::synchronize() {
  if (running_) throw SessionBusy();
  ht_status* failed = nullptr;
  running_ = true;
  {
    const py::gil_scoped_release unlocked;
    failed = ht_session_synchronize(session_.get());
  }
  running_ = false;
  check(failed);
}

void PySession::follow(uintptr_t stream) {
  if (stream == followed_) return;
  check(ht_session_set_stream(session_.get(), reinterpret_cast<void*>(stream)));
  followed_ = stream;
}

void PySession::reset() {
  if (running_) throw SessionBusy();
  check(ht_session_reset(session_.get()));
}

void PySession::trim() {
  if (running_) throw SessionBusy();
  check(ht_session_trim(session_.get()));
  blocks_->trim();
}

py::dict PySession::memory() const {
  ht_memory_info info{};
  info.struct_size = sizeof info;
  check(ht_session_memory(session_.get(), &info));
  py::dict out;
  out["arena_nbytes"] = info.arena_nbytes;
  out["workspace_nbytes"] = info.workspace_nbytes;
  out["outputs_nbytes"] = info.outputs_nbytes;
  out["kept_nbytes"] = blocks_->kept_nbytes();
  out["states_nbytes"] = info.states_nbytes;
  out["num_cached_shapes"] = info.num_cached_shapes;
  out["staging_nbytes"] = info.staging_nbytes;
  out["num_graphs"] = info.num_graphs;
  return out;
}

py::array PySession::read_state(size_t index) const {
  const ht_array_info* state = ht_model_state(model_.get(), index);
  if (state == nullptr) throw py::index_error("no state of this number");
  ht_tensor tensor{};
  tensor.dtype = state->dtype;
  tensor.ndim = state->ndim;
  tensor.shape = const_cast<int64_t*>(state->shape);
  std::vector<char> bytes(state->nbytes + 1);
  check(ht_session_read_state(session_.get(), state->name, bytes.data(), state->nbytes));
  tensor.data = bytes.data();
  return copy_to_numpy(tensor);
}

void PySession::write_state(size_t index, const py::array& value) {
  const ht_array_info* state = ht_model_state(model_.get(), index);
  if (state == nullptr) throw py::index_error("no state of this number");
  check(ht_session_write_state(session_.get(), state->name, value.data(), static_cast<size_t>(value.nbytes())));
}

void PySession::set_observer(py::object observer) {
  observer_ = std::move(observer);
  check(ht_session_set_observer(session_.get(), observer_.is_none() ? nullptr : &PySession::observe, this));
}

int32_t PySession::observe(void* user, const ht_step* step) {
  auto* self = static_cast<PySession*>(user);
  const py::gil_scoped_acquire locked;
  try {
    py::dict values;
    for (size_t i = 0; i < step->num_values; ++i) values[step->names[i]] = copy_to_numpy(step->tensors[i]);
    py::dict out;
    out["entry"] = step->entry;
    out["index"] = step->index;
    out["op"] = step->op;
    out["kernel"] = step->kernel == nullptr ? py::object(py::none()) : py::object(py::str(step->kernel));
    out["duration_ns"] = step->duration_ns;
    out["values"] = values;
    out["file"] = step->file;
    out["line"] = step->line;
    out["source_op"] = step->source_op;
    out["module"] = step->module;
    out["source"] = step->source;
    self->observer_(out);
    return 0;
  } catch (...) {
    self->observer_error_ = std::current_exception();
    return 1;
  }
}

}  // namespace hardtack::py_binding
