#include <algorithm>
#include <map>
#include <unordered_map>

#include "checked.h"
#include "plan_verify.h"

namespace hardtack::rt {
namespace {

constexpr uint64_t kMaxWork = uint64_t{1}
                              << 24;  // dimensions looked at: many launches may share a call of many accesses
constexpr size_t kMaxParts = 64;      // of a value that are kept apart; one in more pieces counts as not written

struct Dim {
  int64_t size = 0, stride = 0;
  bool operator==(const Dim& o) const { return size == o.size && stride == o.stride; }
};

// The elements offset + sum(i * stride), i below each size: sizes above 1, strides descending and positive.
struct Box {
  int64_t offset = 0;
  std::vector<Dim> dims;
  bool operator==(const Box& o) const { return offset == o.offset && dims == o.dims; }
};

// Without dimensions that say nothing, and with those joined that continue each other. The box lies inside a value, so
// nothing overflows.
Box make_box(int64_t offset, std::vector<Dim> dims) {
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dim& a, const Dim& b) { return std::abs(a.stride) > std::abs(b.stride); });
  Box box = {offset, {}};
  for (const Dim& d : dims) {
    if (d.size == 1 || d.stride == 0) continue;
    if (d.stride < 0) box.offset += (d.size - 1) * d.stride;
    const Dim now = {d.size, std::abs(d.stride)};
    if (!box.dims.empty() && box.dims.back().stride == now.size * now.stride)
      box.dims.back() = {box.dims.back().size * now.size, now.stride};
    else
      box.dims.push_back(now);
  }
  return box;
}

// The dimensions but for that of a stride, and its size, 1 where there is none.
std::vector<Dim> without(const Box& box, int64_t stride, int64_t* size) {
  std::vector<Dim> rest;
  *size = 1;
  for (const Dim& d : box.dims) {
    if (d.stride == stride)
      *size = d.size;
    else
      rest.push_back(d);
  }
  return rest;
}

// The elements of both, where they are a box: one goes on in one dimension where the other ends.
bool join(const Box& x, const Box& y, Box* both) {
  const Box &a = x.offset <= y.offset ? x : y, &b = x.offset <= y.offset ? y : x;
  const int64_t distance = b.offset - a.offset;
  if (distance == 0) {
    *both = a;
    return a == b;
  }
  std::vector<int64_t> strides;
  for (const Box* box : {&a, &b}) {
    for (const Dim& d : box->dims) strides.push_back(d.stride);
  }
  strides.push_back(1);
  for (const int64_t stride : strides) {
    int64_t first = 1, second = 1;
    std::vector<Dim> rest = without(a, stride, &first);
    if (rest != without(b, stride, &second) || distance != first * stride) continue;
    rest.push_back({first + second, stride});
    *both = make_box(a.offset, std::move(rest));
    return true;
  }
  return false;
}

// Which values are written as a whole, on the path that is walked, and the parts of the others.
class Written {
 public:
  explicit Written(size_t num_values) : whole_(num_values, false), parts_(num_values), saved_in_(num_values, 0) {}

  bool whole(uint32_t v) const { return whole_[v]; }
  size_t num_parts(uint32_t v) const { return parts_[v].size(); }
  void set_whole(uint32_t v) {
    if (whole_[v]) return;
    save(v);
    whole_[v] = true;
  }
  void add(uint32_t v, int64_t numel, Box box) {
    if (whole_[v]) return;
    save(v);
    std::vector<Box>& parts = parts_[v];
    for (size_t i = 0; i < parts.size();) {
      Box both;
      if (!join(parts[i], box, &both)) {
        ++i;
        continue;
      }
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
      box = std::move(both);
      i = 0;
    }
    if (box == make_box(0, {{numel, 1}}))
      whole_[v] = true;
    else if (parts.size() < kMaxParts)
      parts.push_back(std::move(box));
  }

  struct Mark {
    size_t num_saved = 0;
    uint32_t branch = 0;
  };
  /// Begins a branch.
  Mark enter() {
    const Mark mark = {saved_.size(), branch_};
    branch_ = ++num_branches_;
    return mark;
  }
  /// Back to how it was before the branch; says which values had become whole in it.
  std::vector<uint32_t> leave(const Mark& mark) {
    std::vector<uint32_t> were_whole;
    for (; saved_.size() > mark.num_saved; saved_.pop_back()) {
      const uint32_t v = saved_.back().first;
      if (whole_[v]) were_whole.push_back(v);
      whole_[v] = false;
      parts_[v] = std::move(saved_.back().second);
    }
    branch_ = mark.branch;
    return were_whole;
  }

 private:
  std::vector<bool> whole_;
  std::vector<std::vector<Box>> parts_;
  // Once for each value and branch, so that a plan cannot make it large.
  void save(uint32_t v) {
    if (saved_in_[v] == branch_) return;
    saved_in_[v] = branch_;
    saved_.emplace_back(v, parts_[v]);
  }

  std::vector<uint32_t> saved_in_;  // the last branch in which it was saved; 0: outside of all
  std::vector<std::pair<uint32_t, std::vector<Box>>> saved_;  // values that were not whole, with their parts
  uint32_t branch_ = 0, num_branches_ = 0;
};

class AccessCheck {
 public:
  AccessCheck(const Plan& plan, const int64_t* exprs, bool only_constant, const std::vector<int64_t>& nbytes)
      : plan_(plan), exprs_(exprs), only_constant_(only_constant), nbytes_(nbytes), written_(plan.values.size()) {}

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
  bool known(uint32_t e) const { return !only_constant_ || plan_.exprs.is_constant(e); }

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
      }
    }
    return Status();
  }

  Status branch(const Instr& i) {
    HT_RETURN_IF_ERROR(read(i.cond));
    Written::Mark mark = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.first));
    std::vector<uint32_t> then = written_.leave(mark);
    mark = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.second));
    const std::vector<uint32_t> orelse = written_.leave(mark);
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
    const Written::Mark mark = written_.enter();
    HT_RETURN_IF_ERROR(visit(i.second));
    written_.leave(mark);
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
    bool all_known = known(a.offset) && nbytes_[v] >= 0;
    for (uint32_t d = 0; d < 2 * a.ndim; ++d) all_known = all_known && known(plan_.access_dims[a.first_dim + d]);
    if (!all_known) {
      if (a.fills) written_.set_whole(v);  // proved when a session binds a shape
      return Status();
    }
    work_ += (1 + written_.num_parts(v)) * (1 + uint64_t{a.ndim});
    if (work_ > kMaxWork) return error(HT_BAD_BUNDLE, "kernel %s: its accesses are too many to be proved", kernel.name);
    const int64_t offset = exprs_[a.offset];
    int64_t first = offset, last = offset, end = 0;
    bool empty = false, fits = true;
    std::vector<Dim>& dims = dims_;
    dims.clear();
    for (uint32_t d = 0; d < a.ndim; ++d) {
      const Dim dim = {exprs_[plan_.access_dims[a.first_dim + d]], exprs_[plan_.access_dims[a.first_dim + a.ndim + d]]};
      if (dim.size < 0) {
        return error(HT_BAD_BUNDLE, "kernel %s: an access of \"%s\" has the size %lld", kernel.name, value.name,
                     static_cast<long long>(dim.size));
      }
      dims.push_back(dim);
      int64_t reach = 0;
      empty = empty || dim.size == 0;
      fits = fits && dim.stride > INT64_MIN && checked_mul(dim.size - 1, dim.stride, &reach) &&
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
    if (offset == 0 && dims.size() == 1 && dims[0] == Dim{numel, 1})
      written_.set_whole(v);
    else
      written_.add(v, numel, make_box(offset, dims));
    return Status();
  }

  const Plan& plan_;
  const int64_t* exprs_;
  bool only_constant_;
  const std::vector<int64_t>& nbytes_;
  Written written_;
  std::vector<Dim> dims_;  // of the access that is looked at
  uint64_t work_ = 0;
};

// Equal for launches and calls that pass the same: numbers by value, all else by their expression.
class CallKeys {
 public:
  explicit CallKeys(const Plan& plan) : plan_(plan) {}
  using Key = std::vector<int64_t>;

  Key of(const uint32_t* ints, uint32_t num_ints, const uint32_t* grid, uint32_t shared, uint32_t per_worker) const {
    Key key;
    for (uint32_t k = 0; k < num_ints; ++k) add(ints[k], &key);
    key.push_back(grid != nullptr);
    if (grid != nullptr) {
      for (int axis = 0; axis < 3; ++axis) add(grid[axis], &key);
    } else {
      add(shared, &key);
      add(per_worker, &key);
    }
    return key;
  }

 private:
  void add(uint32_t e, Key* key) const {
    const bool constant = plan_.exprs.is_constant(e);
    key->push_back(constant);
    key->push_back(constant ? plan_.exprs.constant(e) : e);
  }

  const Plan& plan_;
};

}  // namespace

Status find_calls(Plan* plan) {
  const CallKeys keys(*plan);
  std::vector<std::map<CallKeys::Key, uint32_t>> calls(plan->kernels.size());
  for (size_t k = 0; k < calls.size(); ++k) {
    const Kernel& kernel = plan->kernels[k];
    for (uint32_t c = kernel.first_call; c < kernel.first_call + kernel.num_calls; ++c) {
      const Call& call = plan->calls[c];
      if (call.num_ints != kernel.num_ints || call.num_lists != kernel.num_buffers) {
        return error(HT_BAD_BUNDLE, "kernel %s: a call has %u ints and %u buffers, its params are %u and %u",
                     kernel.name, call.num_ints, call.num_lists, kernel.num_ints, kernel.num_buffers);
      }
      for (uint32_t n = 0; n < call.num_lists; ++n) {
        const AccessList& list = plan->access_lists[call.first_list + n];
        const bool only_read = plan->params[kernel.first_param + n].access == Access::read;
        for (uint32_t a = list.first; only_read && a < list.first + list.count; ++a) {
          if (!plan->accesses[a].fills) continue;
          return error(HT_BAD_BUNDLE, "kernel %s: buffer %u is filled, but its parameter is only read", kernel.name, n);
        }
      }
      calls[k][keys.of(plan->call_ints.data() + call.first_int, call.num_ints, call.has_grid ? call.grid : nullptr,
                       call.shared, call.per_worker)] = c;
    }
  }
  for (Instr& i : plan->instrs) {
    if (i.op != InstrOp::launch) continue;
    const auto found =
        calls[i.kernel].find(keys.of(plan->ints(i), i.num_ints, i.has_grid ? i.grid : nullptr, i.shared, i.per_worker));
    if (found == calls[i.kernel].end()) {
      return error(HT_BAD_BUNDLE, "kernel %s: it declares no call with these ints and %s", plan->kernels[i.kernel].name,
                   i.has_grid ? "this grid" : "workspaces");
    }
    i.call = found->second;
  }
  return Status();
}

Status check_accesses(const Plan& plan, const int64_t* exprs, bool only_constant, const std::vector<int64_t>& nbytes) {
  return AccessCheck(plan, exprs, only_constant, nbytes).check();
}

}  // namespace hardtack::rt
