#include "info.h"

#include <cstdint>

namespace hardtack::py_binding {
namespace {

py::object bound(int64_t hi) { return hi == INT64_MAX ? py::object(py::none()) : py::object(py::int_(hi)); }

// Each size or stride as (text, lo, hi); hi None without an upper bound.
py::list dims_info(const ht_dim_info* dims, int32_t ndim) {
  py::list out;
  for (int32_t d = 0; d < ndim; ++d) out.append(py::make_tuple(dims[d].text, dims[d].lo, bound(dims[d].hi)));
  return out;
}

py::dict tensor_info(const ht_tensor_info& t) {
  py::dict out;
  out["name"] = t.name;
  out["dtype"] = t.dtype_name;
  out["shape"] = dims_info(t.shape, t.ndim);
  out["strides"] = dims_info(t.strides, t.ndim);
  out["written"] = t.written != 0;
  return out;
}

py::dict array_info(const ht_array_info& a) {
  py::dict out;
  py::list shape;
  for (int32_t d = 0; d < a.ndim; ++d) shape.append(a.shape[d]);
  out["name"] = a.name;
  out["dtype"] = a.dtype_name;
  out["shape"] = shape;
  out["nbytes"] = a.nbytes;
  return out;
}

py::dict target_info(const ht_target_info& t) {
  py::dict out;
  out["name"] = t.name;
  out["device"] = t.device;
  out["runnable"] = t.runnable != 0;
  out["missing"] = t.missing;
  return out;
}

py::dict entry_info(const ht_model* model, size_t index) {
  const ht_entry_info& e = *ht_model_entry(model, index);
  py::dict out;
  py::list inputs, outputs, syms, guards;
  for (size_t i = 0; i < e.num_inputs; ++i) inputs.append(tensor_info(*ht_model_input(model, index, i)));
  for (size_t i = 0; i < e.num_outputs; ++i) outputs.append(tensor_info(*ht_model_output(model, index, i)));
  for (size_t i = 0; i < e.num_syms; ++i) {
    const ht_sym_info& s = *ht_model_sym(model, index, i);
    syms.append(py::make_tuple(s.name, s.lo, bound(s.hi)));
  }
  for (size_t i = 0; i < e.num_guards; ++i) guards.append(ht_model_guard(model, index, i));
  out["name"] = e.name;
  out["inputs"] = inputs;
  out["outputs"] = outputs;
  out["syms"] = syms;
  out["guards"] = guards;
  out["in_tree"] = e.in_tree;
  out["out_tree"] = e.out_tree;
  out["num_instructions"] = e.num_instructions;
  out["num_kernels"] = e.num_kernels;
  out["arena_nbytes"] = py::make_tuple(e.arena_lo, bound(e.arena_hi));
  out["no_graph"] = e.no_graph;
  return out;
}

}  // namespace

py::dict model_info(const ht_model* model) {
  const ht_model_info& info = *ht_model_get_info(model);
  py::dict out;
  py::list targets, states;
  for (size_t i = 0; i < info.num_targets; ++i) targets.append(target_info(*ht_model_target(model, i)));
  for (size_t i = 0; i < info.num_states; ++i) states.append(array_info(*ht_model_state(model, i)));
  py::dict producer;
  for (size_t i = 0; i < info.num_producers; ++i) {
    const char* version = nullptr;
    const char* name = ht_model_producer(model, i, &version);
    producer[name] = version;
  }
  out["target"] = info.target;
  out["device"] = info.device;
  out["file_nbytes"] = info.file_nbytes;
  out["weights_nbytes"] = info.weights_nbytes;
  out["has_signature"] = info.has_signature != 0;
  out["trusted"] = info.trusted != 0;
  out["signed_as"] =
      info.signed_model == nullptr ? py::object(py::none()) : py::make_tuple(info.signed_model, info.signed_version);
  out["targets"] = targets;
  out["states"] = states;
  out["producer"] = producer;
  return out;
}

py::list entries_info(const ht_model* model) {
  py::list out;
  for (size_t i = 0; i < ht_model_get_info(model)->num_entries; ++i) out.append(entry_info(model, i));
  return out;
}

}  // namespace hardtack::py_binding
