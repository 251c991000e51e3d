#include "plan_shadow.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace hardtack::fuzz {

using namespace rt;

PlanShadow::PlanShadow(const Plan& plan, const Binding& binding) : plan_(plan), binding_(binding) {
  owners_.emplace_back(static_cast<size_t>(binding.arena_nbytes()), 0);
  for (size_t i = 0; i < plan_.outputs.size(); ++i)
    owners_.emplace_back(static_cast<size_t>(binding.output(i).nbytes), 0);
}

void PlanShadow::fail(const char* problem, uint32_t value) const {
  std::fprintf(stderr, "the plan was proved, but value \"%s\" %s\n", plan_.values[value].name, problem);
  std::abort();
}

// Where a value's owners are; false for what is written before the run.
bool PlanShadow::find(uint32_t v, size_t* region, size_t* first) const {
  const Value& value = plan_.values[v];
  const bool in_arena = value.storage == Storage::arena;
  if (!in_arena && value.storage != Storage::output) return false;
  *region = in_arena ? 0 : 1 + value.at;
  const int64_t at = in_arena ? binding_.exprs()[value.at] : 0;
  const int64_t size = static_cast<int64_t>(owners_[*region].size());
  if (at < 0 || at > size || binding_.nbytes(v) > size - at) fail("is not inside its storage", v);
  *first = static_cast<size_t>(at);
  return true;
}

std::vector<PlanShadow::Boxed> PlanShadow::boxes(const Instr& i) const {
  const int64_t* exprs = binding_.exprs();
  std::vector<Boxed> out;
  const auto add = [&](uint32_t buffer, uint32_t offset, const uint32_t* dims, uint32_t ndim, Access access,
                       bool fills) {
    Boxed box;
    box.value = plan_.buffers(i)[buffer];
    box.offset = exprs[offset];
    for (uint32_t d = 0; d < ndim; ++d) {
      box.sizes.push_back(exprs[dims[d]]);
      box.strides.push_back(exprs[dims[ndim + d]]);
    }
    const int64_t unit = itemsize(plan_.values[box.value].dtype);
    box.element = {buffer, 0, unit, access != Access::write, access != Access::read, fills};
    out.push_back(std::move(box));
  };
  for (int axis = 0; i.has_grid && axis < 3; ++axis) {
    if (exprs[i.grid[axis]] == 0) return out;
  }
  const Call& call = plan_.calls[i.call];
  for (uint32_t k = 0; k < i.num_buffers; ++k) {
    const AccessList& list = plan_.access_lists[call.first_list + k];
    const Access access = plan_.params[plan_.kernels[i.kernel].first_param + k].access;
    for (uint32_t n = list.first; n < list.first + list.count; ++n) {
      const AccessBox& a = plan_.accesses[n];
      add(k, a.offset, plan_.access_dims.data() + a.first_dim, a.ndim, access, a.fills);
    }
  }
  for (uint32_t m = i.first_map; m < i.first_map + i.num_maps; ++m) {
    const MapSource& map = plan_.map_sources[m];
    add(map.buffer, map.offset, plan_.map_dims.data() + map.first_dim, map.ndim, Access::read, false);
  }
  return out;
}

bool PlanShadow::count(const Instr& i, uint64_t max, uint64_t* num_elements) const {
  for (const Boxed& box : boxes(i)) {
    uint64_t count = 1;
    if (std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end()) continue;
    for (const int64_t size : box.sizes) {
      if (size < 0) fail("is accessed at a negative number of elements", box.value);
      if (static_cast<uint64_t>(size) > max / count) return false;
      count *= static_cast<uint64_t>(size);
    }
    *num_elements += count;
    if (*num_elements > max) return false;
  }
  return true;
}

void PlanShadow::each_access(const Instr& i, const std::function<void(const Accessed&)>& see) const {
  for (const Boxed& box : boxes(i)) {
    if (std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end()) continue;
    std::vector<int64_t> index(box.sizes.size(), 0);
    for (bool more = true; more;) {
      int64_t element = box.offset;
      for (size_t d = 0; d < index.size(); ++d) element += index[d] * box.strides[d];
      Accessed accessed = box.element;
      accessed.byte = element * accessed.nbytes;
      see(accessed);
      more = false;
      for (size_t d = index.size(); !more && d-- > 0;) {
        more = ++index[d] < box.sizes[d];
        if (!more) index[d] = 0;
      }
    }
  }
}

void PlanShadow::read(uint32_t v) const {
  size_t region = 0, first = 0;
  if (!find(v, &region, &first)) return;
  for (size_t b = first; b < first + static_cast<size_t>(binding_.nbytes(v)); ++b) {
    const uint32_t owner = owners_[region][b];
    if (owner != v + 1) fail(owner == 0 ? "is read, and not all of it is written" : "is read where another lies", v);
  }
}

void PlanShadow::write(uint32_t v, int64_t byte, int64_t nbytes, bool fills) {
  if (is_read_only(plan_.values[v])) fail("is written", v);
  size_t region = 0, first = 0;
  if (!find(v, &region, &first)) return;
  first += static_cast<size_t>(byte);
  for (size_t b = first; b < first + static_cast<size_t>(nbytes); ++b) {
    uint32_t& owner = owners_[region][b];
    if (fills || owner != v + 1) owner = fills ? v + 1 : 0;  // 0: perhaps written, perhaps not
  }
}

void PlanShadow::launch(const Instr& i) {
  const BufferParam* params = plan_.params.data() + plan_.kernels[i.kernel].first_param;
  for (uint32_t k = 0; k < i.num_buffers; ++k) {
    if (params[k].access != Access::write) read(plan_.buffers(i)[k]);
  }
  each_access(i, [&](const Accessed& a) {
    const uint32_t v = plan_.buffers(i)[a.buffer];
    if (a.byte < 0 || a.byte > binding_.nbytes(v) - a.nbytes) fail("is accessed outside", v);
    if (a.writes) write(v, a.byte, a.nbytes, a.fills);
  });
}

void PlanShadow::step(const Instr& i) {
  switch (i.op) {
    case InstrOp::launch: return launch(i);
    case InstrOp::copy: read(i.src); return write(i.dst, 0, binding_.nbytes(i.dst), true);
    case InstrOp::fill: return write(i.dst, 0, binding_.nbytes(i.dst), true);
    case InstrOp::branch:
    case InstrOp::loop: return read(i.cond);
  }
}

void PlanShadow::check_outputs() const {
  for (const uint32_t v : plan_.outputs) read(v);
}

}  // namespace hardtack::fuzz
