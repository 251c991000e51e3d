#include "plan_verify.h"

#include <algorithm>
#include <cstring>

#include "checked.h"
#include "manifest_check.h"

namespace hardtack::rt {
namespace {

// Every number that is used as an index, before anything is looked up with it.
class Indices {
 public:
  explicit Indices(const Plan& plan) : plan_(plan) {}

  Status check() const {
    HT_RETURN_IF_ERROR(expr(plan_.arena, "the arena"));
    for (const uint32_t e : plan_.dims) HT_RETURN_IF_ERROR(expr(e, "a shape or stride"));
    for (const Guard& g : plan_.guards) {
      HT_RETURN_IF_ERROR(expr(g.a, "a guard"));
      HT_RETURN_IF_ERROR(expr(g.b, "a guard"));
    }
    for (const uint32_t v : plan_.inputs) HT_RETURN_IF_ERROR(value(v, "inputs"));
    for (const uint32_t v : plan_.outputs) HT_RETURN_IF_ERROR(value(v, "outputs"));
    for (const Value& v : plan_.values) HT_RETURN_IF_ERROR(storage(v));
    for (const PlanSym& s : plan_.syms) HT_RETURN_IF_ERROR(sym(s));
    for (const Call& c : plan_.calls) HT_RETURN_IF_ERROR(call(c));
    for (const uint32_t e : plan_.call_ints) HT_RETURN_IF_ERROR(expr(e, "a call"));
    for (const uint32_t e : plan_.access_dims) HT_RETURN_IF_ERROR(expr(e, "an access"));
    for (const AccessBox& a : plan_.accesses) HT_RETURN_IF_ERROR(expr(a.offset, "an access"));
    for (const Instr& i : plan_.instrs) HT_RETURN_IF_ERROR(instr(i));
    return Status();
  }

 private:
  static Status outside(const char* what, const char* kind, uint32_t index, size_t count) {
    return error(HT_BAD_BUNDLE, "%s: no %s %u, there are %zu", what, kind, index, count);
  }
  Status expr(uint32_t e, const char* what) const {
    return e < plan_.exprs.size() ? Status() : outside(what, "expression", e, plan_.exprs.size());
  }
  Status value(uint32_t v, const char* what) const {
    return v < plan_.values.size() ? Status() : outside(what, "value", v, plan_.values.size());
  }

  Status storage(const Value& v) const {
    if (v.storage == Storage::arena) return expr(v.at, v.name);
    if (v.storage == Storage::input && v.at >= plan_.inputs.size())
      return outside(v.name, "input", v.at, plan_.inputs.size());
    if (v.storage == Storage::output && v.at >= plan_.outputs.size()) {
      return outside(v.name, "output", v.at, plan_.outputs.size());
    }
    return Status();
  }

  Status sym(const PlanSym& s) const {
    if (s.lo > s.hi) return error(HT_BAD_BUNDLE, "symbol \"%s\": its range is empty", s.name);
    if (s.input == kNone) {
      return s.dim < 0 ? Status() : error(HT_BAD_BUNDLE, "symbol \"%s\" is a dimension of no input", s.name);
    }
    if (s.input >= plan_.inputs.size()) return outside(s.name, "input", s.input, plan_.inputs.size());
    const Value& v = plan_.values[plan_.inputs[s.input]];
    if (s.dim < 0 && (v.ndim != 0 || v.dtype != DType::i64)) {
      return error(HT_BAD_BUNDLE, "symbol \"%s\": input \"%s\" is not a rank-0 i64", s.name, v.name);
    }
    if (s.dim >= 0 && static_cast<uint32_t>(s.dim) >= v.ndim) {
      return error(HT_BAD_BUNDLE, "symbol \"%s\": input \"%s\" has no dimension %d", s.name, v.name, s.dim);
    }
    const Expr* dim = s.dim < 0 ? nullptr : &plan_.exprs.nodes[plan_.shape(v)[s.dim]];
    if (dim != nullptr && (dim->op != ExprOp::sym || dim->value != &s - plan_.syms.data())) {
      return error(HT_BAD_BUNDLE, "symbol \"%s\" does not stand alone as dimension %d of input \"%s\"", s.name, s.dim,
                   v.name);
    }
    return Status();
  }

  Status call(const Call& c) const {
    for (const uint32_t e : {c.shared, c.per_worker, c.grid[0], c.grid[1], c.grid[2]}) {
      HT_RETURN_IF_ERROR(expr(e, "a call"));
    }
    return Status();
  }

  Status gpu_launch(const Instr& i) const {
    for (const uint32_t e : i.grid) HT_RETURN_IF_ERROR(expr(e, "a grid"));
    for (uint32_t m = i.first_map; m < i.first_map + i.num_maps; ++m) {
      const MapSource& source = plan_.map_sources[m];
      HT_RETURN_IF_ERROR(expr(source.offset, "a tensor map"));
      for (uint32_t d = 0; d < 2 * source.ndim; ++d) {
        HT_RETURN_IF_ERROR(expr(plan_.map_dims[source.first_dim + d], "a tensor map"));
      }
    }
    return Status();
  }

  Status instr(const Instr& i) const {
    if (i.origin >= plan_.origins.size()) return outside("an instruction", "origin", i.origin, plan_.origins.size());
    switch (i.op) {
      case InstrOp::launch:
        if (i.kernel >= plan_.kernels.size()) return outside("a launch", "kernel", i.kernel, plan_.kernels.size());
        for (uint32_t k = 0; k < i.num_buffers; ++k) HT_RETURN_IF_ERROR(value(plan_.buffers(i)[k], "a launch"));
        for (uint32_t k = 0; k < i.num_ints; ++k) HT_RETURN_IF_ERROR(expr(plan_.ints(i)[k], "a launch"));
        if (i.has_grid) return gpu_launch(i);
        HT_RETURN_IF_ERROR(expr(i.shared, "a launch"));
        return expr(i.per_worker, "a launch");
      case InstrOp::copy: HT_RETURN_IF_ERROR(value(i.src, "a copy")); return value(i.dst, "a copy");
      case InstrOp::fill: return value(i.dst, "a fill");
      case InstrOp::branch: return value(i.cond, "an if");
      case InstrOp::loop: return value(i.cond, "a while");
      case InstrOp::read:
        if (i.sym >= plan_.syms.size()) return outside("a read", "symbol", i.sym, plan_.syms.size());
        HT_RETURN_IF_ERROR(expr(i.arena, "a read"));
        return value(i.src, "a read");
    }
    return Status();
  }

  const Plan& plan_;
};

Status check_names(const Plan& plan) {
  NameIndex names;
  for (const Value& v : plan.values) {
    if (!names.emplace(v.name, 0).second) return error(HT_BAD_BUNDLE, "value \"%s\" twice", v.name);
  }
  names.clear();
  for (const Kernel& k : plan.kernels) {
    if (!names.emplace(k.name, 0).second) return error(HT_BAD_BUNDLE, "kernel %s twice", k.name);
  }
  return Status();
}

Status check_dims(const Plan& plan) {
  for (const Value& v : plan.values) {
    for (uint32_t d = 0; d < 2 * v.ndim; ++d) {
      const Interval b = plan.exprs.bounds(plan.dims[v.first_dim + d]);
      if (b.hi < 0) return error(HT_BAD_BUNDLE, "value \"%s\": a negative size or stride", v.name);
    }
  }
  return Status();
}

// One manifest size or stride, `times` as large, against the plan's expression: numbers are equal, a symbol is that
// symbol; of longer texts it is only known that they are no constant.
bool agrees(const Plan& plan, const ManifestDim& dim, uint32_t e, int64_t times = 1) {
  const Interval b = plan.exprs.bounds(e);
  if (dim.fixed) return b.lo == dim.value * times && b.hi == dim.value * times;
  const Expr& node = plan.exprs.nodes[e];
  if (node.op == ExprOp::sym)
    return times == 1 && std::strcmp(plan.syms[static_cast<size_t>(node.value)].name, dim.text) == 0;
  return node.op != ExprOp::constant;
}

// Whether a value is what the manifest says of an input or output. Complex numbers are pairs in plans: a last dimension
// of 2, and strides that count parts.
bool is_declared(const Plan& plan, const Value& v, const ManifestTensor& m) {
  const uint32_t ndim = static_cast<uint32_t>(m.shape.size());
  const bool pairs = is_complex(m.dtype);
  if (v.dtype != part_dtype(m.dtype) || v.ndim != ndim + (pairs ? 1 : 0)) return false;
  for (uint32_t d = 0; d < ndim; ++d) {
    if (!agrees(plan, m.shape[d], plan.shape(v)[d])) return false;
    if (!agrees(plan, m.strides[d], plan.strides(v)[d], pairs ? 2 : 1)) return false;
  }
  const auto is = [&](uint32_t e, int64_t n) { return plan.exprs.bounds(e).lo == n && plan.exprs.bounds(e).hi == n; };
  return !pairs || (is(plan.shape(v)[ndim], 2) && is(plan.strides(v)[ndim], 1));
}

Status check_tensors(Plan* checked, const std::vector<ManifestTensor>& declared, const std::vector<uint32_t>& values,
                     Storage storage, const char* what) {
  Plan& plan = *checked;
  if (declared.size() != values.size()) {
    return error(HT_BAD_BUNDLE, "%zu %ss, the manifest has %zu", values.size(), what, declared.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    Value& v = plan.values[values[i]];
    const ManifestTensor& m = declared[i];
    if (v.storage != storage || v.at != i) {
      return error(HT_BAD_BUNDLE, "%s %zu: value \"%s\" is not stored there", what, i, v.name);
    }
    // an output's value has the graph's name; the manifest has the name that users see
    const bool same_name = storage == Storage::output || std::strcmp(v.name, m.name) == 0;
    if (!same_name || !is_declared(plan, v, m)) {
      return error(HT_BAD_BUNDLE, "%s %zu \"%s\": name, dtype, shape or strides differ from the manifest's \"%s\"",
                   what, i, v.name, m.name);
    }
    v.is_complex = is_complex(m.dtype);
    v.is_written = m.written;
  }
  size_t num_stored = 0;
  for (const Value& v : plan.values) num_stored += v.storage == storage ? 1 : 0;
  if (num_stored == values.size()) return Status();
  return error(HT_BAD_BUNDLE, "%zu values are stored in %zu %ss", num_stored, values.size(), what);
}

Status check_syms(const Plan& plan, const ManifestEntry& entry) {
  bool same = plan.syms.size() == entry.syms.size();
  for (size_t i = 0; same && i < plan.syms.size(); ++i) {
    const PlanSym& a = plan.syms[i];
    const ManifestSym& b = entry.syms[i];
    same = std::strcmp(a.name, b.name) == 0 && a.lo == b.lo && a.hi == b.hi;
  }
  return same ? Status() : error(HT_BAD_BUNDLE, "its symbols differ from the manifest's");
}

// A constant has the declared dtype and numel, a state also the shape, and behind it the parts of complex numbers; both
// fit into what is stored.
Status check_array(const Plan& plan, const Value& v, const ManifestArray& array) {
  bool same = v.dtype == part_dtype(array.dtype);
  int64_t numel_nbytes = itemsize(v.dtype);
  for (uint32_t d = 0; same && d < 2 * v.ndim; ++d) same = plan.exprs.is_constant(plan.dims[v.first_dim + d]);
  if (same && v.storage == Storage::state) {
    const size_t ndim = array.shape.size();
    const bool pairs = is_complex(array.dtype);
    same = v.ndim == ndim + (pairs ? 1 : 0);
    for (uint32_t d = 0; same && d < v.ndim; ++d) {
      same = plan.exprs.constant(plan.shape(v)[d]) == (d < ndim ? array.shape[d] : 2);
    }
  }
  for (uint32_t d = 0; same && d < v.ndim; ++d) {
    same = checked_mul(numel_nbytes, plan.exprs.constant(plan.shape(v)[d]), &numel_nbytes);
  }
  int64_t nbytes = 0;
  same = same && numel_nbytes == array.nbytes && value_nbytes(plan, v, plan.exprs.constants().data(), &nbytes) &&
         nbytes <= array.nbytes;
  if (same) return Status();
  return error(HT_BAD_BUNDLE, "value \"%s\": dtype or size differ from \"%s\" in the manifest", v.name, array.name);
}

Status check_dtypes(const Plan& plan, int64_t format) {
  for (const Value& v : plan.values) {
    if (dtype_since(v.dtype) > format) return newer_dtype(v.name, v.dtype, format);
  }
  return Status();
}

Status check_read_format(const Plan& plan, int64_t format) {
  for (const PlanSym& s : plan.syms) {
    if (s.input != kNone || format >= kReadsFormat) continue;
    return error(HT_BAD_BUNDLE, "symbol \"%s\" is read, which came with format %lld; the manifest's is %lld", s.name,
                 static_cast<long long>(kReadsFormat), static_cast<long long>(format));
  }
  return Status();
}

Status resolve_arrays(const Manifest& manifest, Plan* plan) {
  for (Value& v : plan->values) {
    if (v.storage != Storage::constant && v.storage != Storage::state) continue;
    const bool constant = v.storage == Storage::constant;
    const int at = constant ? manifest.find_constant(v.storage_name) : manifest.find_state(v.storage_name);
    if (at < 0) {
      return error(HT_BAD_BUNDLE, "value \"%s\": the manifest has no %s \"%s\"", v.name,
                   constant ? "constant" : "state", v.storage_name);
    }
    v.at = static_cast<uint32_t>(at);
    HT_RETURN_IF_ERROR(check_array(*plan, v, constant ? manifest.constants[v.at] : manifest.states[v.at]));
  }
  return Status();
}

bool all_constant(const Plan& plan) {
  const ExprTable& exprs = plan.exprs;
  if (!exprs.is_constant(plan.arena)) return false;
  for (const uint32_t e : plan.dims) {
    if (!exprs.is_constant(e)) return false;
  }
  for (const Value& v : plan.values) {
    if (v.storage == Storage::arena && !exprs.is_constant(v.at)) return false;
  }
  for (const Instr& i : plan.instrs) {
    if (i.op == InstrOp::read && !exprs.is_constant(i.arena)) return false;
    if (i.op != InstrOp::launch) continue;
    if (!i.has_grid && !(exprs.is_constant(i.shared) && exprs.is_constant(i.per_worker))) return false;
    for (int axis = 0; i.has_grid && axis < 3; ++axis) {
      if (!exprs.is_constant(i.grid[axis])) return false;
    }
  }
  for (const std::vector<uint32_t>* list : {&plan.map_dims, &plan.access_dims}) {
    for (const uint32_t e : *list) {
      if (!exprs.is_constant(e)) return false;
    }
  }
  for (const AccessBox& a : plan.accesses) {
    if (!exprs.is_constant(a.offset)) return false;
  }
  for (const MapSource& m : plan.map_sources) {
    if (!exprs.is_constant(m.offset)) return false;
  }
  return true;
}

// A plan calls nothing of the host program that the manifest does not say.
Status check_host_kernels(const Plan& plan, const Manifest& manifest) {
  for (const Kernel& kernel : plan.kernels) {
    if (kernel.host != nullptr && !manifest.names_host_kernel(kernel.host)) {
      return error(HT_BAD_BUNDLE, "kernel %s calls the host's function \"%s\", which the manifest does not name",
                   kernel.name, kernel.host);
    }
  }
  return Status();
}

Status verify(const Manifest& manifest, const ManifestEntry& entry, const char* target, Plan* plan) {
  if (std::strcmp(plan->entry, entry.name) != 0 || std::strcmp(plan->target, target) != 0) {
    return error(HT_BAD_BUNDLE, "it is for entry \"%s\" and target %s", plan->entry, plan->target);
  }
  std::vector<Interval> syms;
  for (const PlanSym& s : plan->syms) syms.push_back({s.lo, s.hi});
  HT_RETURN_IF_ERROR(plan->exprs.analyse(syms));
  while (plan->num_input_syms < plan->syms.size() && plan->syms[plan->num_input_syms].input != kNone)
    ++plan->num_input_syms;
  HT_RETURN_IF_ERROR(Indices(*plan).check());
  HT_RETURN_IF_ERROR(check_names(*plan));
  HT_RETURN_IF_ERROR(check_dtypes(*plan, manifest.format));
  HT_RETURN_IF_ERROR(check_dims(*plan));
  HT_RETURN_IF_ERROR(check_syms(*plan, entry));
  HT_RETURN_IF_ERROR(check_read_format(*plan, manifest.format));
  HT_RETURN_IF_ERROR(check_tensors(plan, entry.inputs, plan->inputs, Storage::input, "input"));
  HT_RETURN_IF_ERROR(check_tensors(plan, entry.outputs, plan->outputs, Storage::output, "output"));
  HT_RETURN_IF_ERROR(resolve_arrays(manifest, plan));
  const char* device = manifest.targets[static_cast<size_t>(manifest.find_target(target))].device;
  HT_RETURN_IF_ERROR(check_gpu_kernels(*plan, manifest, device));
  HT_RETURN_IF_ERROR(check_host_kernels(*plan, manifest));
  HT_RETURN_IF_ERROR(check_flow(plan));
  plan->is_static = all_constant(*plan);
  std::vector<int64_t> nbytes;
  HT_RETURN_IF_ERROR(check_places(*plan, plan->exprs.constants().data(), 0, &nbytes));
  HT_RETURN_IF_ERROR(check_gpu_launches(*plan, plan->exprs.constants().data(), 0, nbytes));
  HT_RETURN_IF_ERROR(find_calls(plan));
  HT_RETURN_IF_ERROR(check_reads(*plan));
  return check_accesses(*plan, plan->exprs.constants().data(), 0, nbytes);
}

}  // namespace

Status verify_plan(const Manifest& manifest, const ManifestEntry& entry, const char* target, Plan* plan) {
  return in_context(verify(manifest, entry, target, plan),
                    "plan of \"" + std::string(entry.name) + "\" for " + std::string(target));
}

}  // namespace hardtack::rt
