#include "binding.h"

#include "contract.h"
#include "plan_verify.h"

namespace hardtack::rt {

Status Binding::create(const Program& program, const std::vector<int64_t>& syms, std::unique_ptr<Binding>* out) {
  std::unique_ptr<Binding> binding(new Binding(program));
  const Plan& plan = program.plan;
  binding->syms_ = syms;
  binding->exprs_ = plan.exprs.constants();
  uint32_t node = 0;
  const ExprFault fault = plan.exprs.evaluate(syms.data(), syms.size(), binding->exprs_.data(), &node);
  if (fault != ExprFault::none) {
    return error(fault_code(plan, syms), "entry \"%s\": with %s, expression %u of its plan %s", plan.entry,
                 sizes_text(plan, syms).c_str(), node, fault_text(fault));
  }
  binding->copy_dims();
  for (const uint32_t v : plan.inputs) HT_RETURN_IF_ERROR(binding->add_port(v, &binding->inputs_));
  for (const uint32_t v : plan.outputs) HT_RETURN_IF_ERROR(binding->add_port(v, &binding->outputs_));
  *out = std::move(binding);
  return Status();
}

void Binding::copy_dims() {
  const std::vector<uint32_t>& dims = program_.plan.dims;
  dims_.resize(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) dims_[i] = known(dims[i]) ? exprs_[dims[i]] : -1;
}

// An input or output as callers see it: strides of complex numbers count these, the plan's count their parts.
Status Binding::add_port(uint32_t value, std::vector<BoundPort>* ports) {
  const Value& v = program_.plan.values[value];
  BoundPort port = dims(value);
  if (v.is_complex) {
    std::vector<int64_t> strides;
    for (uint32_t d = 0; d < port_ndim(v); ++d) {
      const bool unknown = port.strides[d] < 0;  // until the run has read a size
      if (!unknown && port.strides[d] % 2 != 0) {
        return error(HT_BAD_BUNDLE, "entry \"%s\" with %s: complex \"%s\" has the stride %lld of parts in dimension %u",
                     program_.plan.entry, sizes_text(program_.plan, syms_).c_str(), v.name,
                     static_cast<long long>(port.strides[d]), d);
      }
      strides.push_back(unknown ? port.strides[d] : port.strides[d] / 2);
    }
    complex_strides_.push_back(std::move(strides));
    port.strides = complex_strides_.back().data();
  }
  ports->push_back(port);
  return Status();
}

BoundPort Binding::dims(uint32_t value) const {
  const Value& v = program_.plan.values[value];
  BoundPort port;
  port.shape = dims_.data() + v.first_dim;
  port.strides = port.shape + v.ndim;
  return port;
}

Status Binding::prepare(Queue* queue, size_t program_index) {
  const Plan& plan = program_.plan;
  if (plan.is_static) {
    nbytes_.resize(plan.values.size());
    for (size_t i = 0; i < nbytes_.size(); ++i) {
      if (!value_nbytes(plan, plan.values[i], exprs_.data(), &nbytes_[i]))
        return error(HT_INTERNAL, "a static size changed");
    }
  } else {
    Status places = check_places(plan, exprs_.data(), syms_.size(), &nbytes_);
    if (places.ok()) places = check_gpu_launches(plan, exprs_.data(), syms_.size(), nbytes_);
    if (places.ok()) places = check_accesses(plan, exprs_.data(), syms_.size(), nbytes_);
    HT_RETURN_IF_ERROR(
        in_context(std::move(places), "entry \"" + std::string(plan.entry) + "\" with " + sizes_text(plan, syms_)));
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) inputs_[i].nbytes = nbytes_[plan.inputs[i]];
  for (size_t i = 0; i < plan.outputs.size(); ++i) outputs_[i].nbytes = nbytes_[plan.outputs[i]];
  values_.resize(plan.values.size());
  slots_.resize(program_.slot_values.size());
  for (const uint32_t e : program_.int_exprs) ints_.push_back(exprs_[e]);
  evaluate_maps();
  std::vector<LaunchSite> sites;
  size_t slot = 0, integer = 0;
  for (const uint32_t index : program_.launches) {
    const Instr& i = plan.instrs[index];
    LaunchSite site;
    site.kernel = i.kernel;
    site.buffers = slots_.data() + slot;
    site.ints = ints_.data() + integer;
    site.ready = is_ready(i);
    if (i.has_grid) {
      for (int axis = 0; axis < 3; ++axis) site.grid[axis] = exprs_[i.grid[axis]];
      site.maps = maps_.data() + i.first_map;
    } else {
      site.shared_nbytes = exprs_[i.shared];
      site.per_worker_nbytes = exprs_[i.per_worker];
    }
    sites.push_back(site);
    slot += i.num_buffers;
    integer += i.num_ints;
  }
  return in_context(queue->prepare(program_index, sites, &launches_),
                    "entry \"" + std::string(plan.entry) + "\" with " + sizes_text(plan, syms_));
}

// Whether all that the launch is given is known: it stands behind no later read.
bool Binding::is_ready(const Instr& i) const {
  const Plan& plan = program_.plan;
  bool ready = true;
  for (uint32_t k = 0; k < i.num_buffers; ++k) ready = ready && nbytes_[plan.buffers(i)[k]] >= 0;
  for (uint32_t k = 0; k < i.num_ints; ++k) ready = ready && known(plan.ints(i)[k]);
  for (int axis = 0; i.has_grid && axis < 3; ++axis) ready = ready && known(i.grid[axis]);
  if (!i.has_grid) ready = ready && known(i.shared) && known(i.per_worker);
  for (uint32_t m = i.first_map; m < i.first_map + i.num_maps; ++m) {
    const MapSource& source = plan.map_sources[m];
    ready = ready && known(source.offset);
    for (uint32_t d = 0; d < 2 * source.ndim; ++d) ready = ready && known(plan.map_dims[source.first_dim + d]);
  }
  return ready;
}

void Binding::evaluate_maps() {
  const Plan& plan = program_.plan;
  for (const uint32_t e : plan.map_dims) map_dims_.push_back(exprs_[e]);
  for (const MapSource& source : plan.map_sources) {
    const int64_t* shape = map_dims_.data() + source.first_dim;
    maps_.push_back({source.buffer, exprs_[source.offset], shape, shape + source.ndim});
  }
}

void Binding::io_pointers(std::vector<void*>* pointers) const {
  pointers->clear();
  for (const uint32_t v : program_.plan.inputs) pointers->push_back(values_[v]);
  for (const uint32_t v : program_.plan.outputs) pointers->push_back(values_[v]);
}

void Binding::place(const Device& device, void* arena, void* workspace, void* const* states, uint64_t generation) {
  const Plan& plan = program_.plan;
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const Value& v = plan.values[i];
    switch (v.storage) {
      case Storage::arena: values_[i] = static_cast<char*>(arena) + exprs_[v.at]; break;
      case Storage::constant: values_[i] = const_cast<void*>(device.constant(v.at)); break;
      case Storage::state: values_[i] = states[v.at]; break;
      case Storage::input:
      case Storage::output: break;
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i] = values_[program_.slot_values[i]];
  launches_->set_workspace(workspace);
  replays.clear();
  generation_ = generation;
}

}  // namespace hardtack::rt
