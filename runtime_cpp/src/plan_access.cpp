#include <algorithm>
#include <map>

#include "checked.h"
#include "plan_verify.h"
#include "plan_written.h"

namespace hardtack::rt {
namespace {

// Dimensions looked at: many launches may share a call of many accesses.
constexpr uint64_t kMaxWork = uint64_t{1} << 24;

class AccessCheck {
 public:
  AccessCheck(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes)
      : plan_(plan), exprs_(exprs), num_syms_(num_syms), nbytes_(nbytes), written_(plan.values.size()) {}

  Status check() {
    for (uint32_t v = 0; v < plan_.values.size(); ++v) {
      const Storage s = plan_.values[v].storage;
      const bool given = s == Storage::input || s == Storage::constant || s == Storage::state;
      // what has an unknown size is proved when a session binds a shape
      if (given || nbytes_[v] <= 0) written_.set_whole(v);
    }
    HT_RETURN_IF_ERROR(visit(plan_.body));
    for (const uint32_t v : plan_.outputs) {
      if (!written_.whole(v)) {
        return error(HT_BAD_BUNDLE, "output \"%s\" is not written as a whole", plan_.values[v].name);
      }
    }
    return Status();
  }

 private:
  bool known(uint32_t e) const { return plan_.exprs.is_known(e, num_syms_); }

  Status visit(uint32_t first) {
    for (uint32_t at = first; at != kNone; at = plan_.instrs[at].next) {
      const Instr& i = plan_.instrs[at];
      switch (i.op) {
        case InstrOp::launch: HT_RETURN_IF_ERROR(launch(i)); break;
        case InstrOp::copy:
          HT_RETURN_IF_ERROR(read(i.src));
          written_.set_whole(i.dst);
          break;
        case InstrOp::fill: written_.set_whole(i.dst); break;
        case InstrOp::branch: HT_RETURN_IF_ERROR(branch(i)); break;
        case InstrOp::loop: HT_RETURN_IF_ERROR(loop(i)); break;
        case InstrOp::read: HT_RETURN_IF_ERROR(read(i.src)); break;
      }
    }
    return Status();
  }

  Status branch(const Instr& i) {
    HT_RETURN_IF_ERROR(read(i.cond));
    size_t entered = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.first));
    std::vector<uint32_t> then = written_.leave(entered);
    entered = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.second));
    const std::vector<uint32_t> orelse = written_.leave(entered);
    std::sort(then.begin(), then.end());
    for (const uint32_t v : orelse) {
      if (std::binary_search(then.begin(), then.end(), v)) written_.set_whole(v);
    }
    return Status();
  }

  // The test runs at least once, the body perhaps never; a later round sees no less than the first.
  Status loop(const Instr& i) {
    HT_RETURN_IF_ERROR(visit(i.first));
    HT_RETURN_IF_ERROR(read(i.cond));
    const size_t entered = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.second));
    written_.leave(entered);
    return Status();
  }

  Status read(uint32_t v) const {
    if (written_.whole(v)) return Status();
    return error(HT_BAD_BUNDLE, "value \"%s\" is read before all of it is written", plan_.values[v].name);
  }

  Status launch(const Instr& i) {
    const Kernel& kernel = plan_.kernels[i.kernel];
    const Call& call = plan_.calls[i.call];
    const BufferParam* params = plan_.params.data() + kernel.first_param;
    for (uint32_t k = 0; k < i.num_buffers; ++k) {
      if (params[k].access != Access::write) HT_RETURN_IF_ERROR(read(plan_.buffers(i)[k]));
    }
    bool idle = false;
    for (uint32_t axis = 0; i.has_grid && axis < 3; ++axis)
      idle = idle || (known(i.grid[axis]) && exprs_[i.grid[axis]] == 0);
    for (uint32_t k = 0; k < i.num_buffers; ++k) {
      const AccessList& list = plan_.access_lists[call.first_list + k];
      for (uint32_t a = list.first; a < list.first + list.count; ++a) {
        HT_RETURN_IF_ERROR(access(kernel, plan_.accesses[a], plan_.buffers(i)[k], idle));
      }
    }
    return Status();
  }

  Status access(const Kernel& kernel, const AccessBox& a, uint32_t v, bool idle) {
    const Value& value = plan_.values[v];
    work_ += 1 + uint64_t{a.ndim};
    if (work_ + written_.work() > kMaxWork) {
      return error(HT_BAD_BUNDLE, "kernel %s: its accesses are too many to be proved", kernel.name);
    }
    bool all_known = known(a.offset) && nbytes_[v] >= 0;
    for (uint32_t d = 0; d < 2 * a.ndim; ++d) all_known = all_known && known(plan_.access_dims[a.first_dim + d]);
    if (!all_known) {
      if (a.fills) written_.set_whole(v);  // proved when a session binds a shape
      return Status();
    }
    const int64_t offset = exprs_[a.offset];
    int64_t first = offset, last = offset, end = 0;
    bool empty = false, fits = true;
    std::vector<BoxDim>& dims = dims_;
    dims.clear();
    for (uint32_t d = 0; d < a.ndim; ++d) {
      const BoxDim dim = {exprs_[plan_.access_dims[a.first_dim + d]],
                          exprs_[plan_.access_dims[a.first_dim + a.ndim + d]]};
      if (dim.size < 0) {
        return error(HT_BAD_BUNDLE, "kernel %s: an access of \"%s\" has the size %lld", kernel.name, value.name,
                     static_cast<long long>(dim.size));
      }
      dims.push_back(dim);
      int64_t reach = 0;
      empty = empty || dim.size == 0;
      fits = fits && checked_mul(dim.size - 1, dim.stride, &reach) &&
             checked_add(reach < 0 ? first : last, reach, reach < 0 ? &first : &last);
    }
    if (empty) return Status();
    const int64_t unit = itemsize(value.dtype);
    fits = fits && first >= 0 && checked_add(last, int64_t{1}, &end) && checked_mul(end, unit, &end);
    if (!fits || end > nbytes_[v]) {
      return error(HT_BAD_BUNDLE, "kernel %s: accesses elements %lld to %lld of \"%s\", which has %lld bytes",
                   kernel.name, static_cast<long long>(first), static_cast<long long>(last), value.name,
                   static_cast<long long>(nbytes_[v]));
    }
    if (!a.fills || idle || written_.whole(v)) return Status();
    const int64_t numel = nbytes_[v] / unit;
    if (offset == 0 && dims.size() == 1 && dims[0] == BoxDim{numel, 1})
      written_.set_whole(v);
    else
      written_.add(v, numel, make_box(offset, dims));
    return Status();
  }

  const Plan& plan_;
  const int64_t* exprs_;
  size_t num_syms_;
  const std::vector<int64_t>& nbytes_;
  Written written_;
  std::vector<BoxDim> dims_;  // of the access that is looked at
  uint64_t work_ = 0;
};

// What a launch passes, or a call says that it is for: equal where numbers are equal, all else by its expression.
class CallKeys {
 public:
  explicit CallKeys(const Plan& plan) : plan_(plan) {}
  using Key = std::vector<int64_t>;

  Key of(const Call& c) const { return of(plan_.call_ints.data() + c.first_int, c); }
  Key of(const Instr& i) const { return of(plan_.ints(i), i); }

 private:
  template <typename Passed>
  Key of(const uint32_t* ints, const Passed& p) const {
    Key key;
    for (uint32_t k = 0; k < p.num_ints; ++k) add(ints[k], &key);
    key.push_back(p.has_grid);
    if (p.has_grid) {
      for (const uint32_t e : p.grid) add(e, &key);
    } else {
      add(p.shared, &key);
      add(p.per_worker, &key);
    }
    return key;
  }

  void add(uint32_t e, Key* key) const {
    const bool constant = plan_.exprs.is_constant(e);
    key->push_back(constant);
    key->push_back(constant ? plan_.exprs.constant(e) : e);
  }

  const Plan& plan_;
};

// Whether a call fits its kernel's params.
Status check_call(const Plan& plan, const Kernel& kernel, const Call& call) {
  if (call.num_ints != kernel.num_ints || call.num_lists != kernel.num_buffers) {
    return error(HT_BAD_BUNDLE, "kernel %s: a call has %u ints and %u buffers, its params are %u and %u", kernel.name,
                 call.num_ints, call.num_lists, kernel.num_ints, kernel.num_buffers);
  }
  for (uint32_t n = 0; n < call.num_lists; ++n) {
    if (plan.params[kernel.first_param + n].access != Access::read) continue;
    const AccessList& list = plan.access_lists[call.first_list + n];
    for (uint32_t a = list.first; a < list.first + list.count; ++a) {
      if (!plan.accesses[a].fills) continue;
      return error(HT_BAD_BUNDLE, "kernel %s: buffer %u is filled, but its parameter is only read", kernel.name, n);
    }
  }
  return Status();
}

}  // namespace

Status find_calls(Plan* plan) {
  const CallKeys keys(*plan);
  std::vector<std::map<CallKeys::Key, uint32_t>> calls(plan->kernels.size());
  for (size_t k = 0; k < calls.size(); ++k) {
    const Kernel& kernel = plan->kernels[k];
    for (uint32_t c = kernel.first_call; c < kernel.first_call + kernel.num_calls; ++c) {
      const Call& call = plan->calls[c];
      HT_RETURN_IF_ERROR(check_call(*plan, kernel, call));
      if (calls[k].emplace(keys.of(call), c).second) continue;
      return error(HT_BAD_BUNDLE, "kernel %s: two of its calls have the same ints and %s", kernel.name,
                   call.has_grid ? "grid" : "workspaces");
    }
  }
  for (Instr& i : plan->instrs) {
    if (i.op != InstrOp::launch) continue;
    const auto found = calls[i.kernel].find(keys.of(i));
    if (found == calls[i.kernel].end()) {
      return error(HT_BAD_BUNDLE, "kernel %s: it declares no call with these ints and %s", plan->kernels[i.kernel].name,
                   i.has_grid ? "this grid" : "workspaces");
    }
    i.call = found->second;
  }
  return Status();
}

Status check_accesses(const Plan& plan, const int64_t* exprs, size_t num_syms, const std::vector<int64_t>& nbytes) {
  return AccessCheck(plan, exprs, num_syms, nbytes).check();
}

}  // namespace hardtack::rt
