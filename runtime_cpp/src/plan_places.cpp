#include <algorithm>
#include <map>

#include "checked.h"
#include "manifest_check.h"
#include "plan_verify.h"

namespace hardtack::rt {
namespace {

class Places {
 public:
  Places(const Plan& plan, const int64_t* exprs, size_t num_syms, std::vector<int64_t>* nbytes)
      : plan_(plan), exprs_(exprs), num_syms_(num_syms), nbytes_(*nbytes) {}

  Status check() {
    HT_RETURN_IF_ERROR(check_outputs());
    HT_RETURN_IF_ERROR(check_sizes());
    HT_RETURN_IF_ERROR(check_arena());
    HT_RETURN_IF_ERROR(check_workspaces());
    return check_overlaps();
  }

 private:
  bool known(uint32_t e) const { return plan_.exprs.is_known(e, num_syms_); }

  bool dims_known(const Value& v) const {
    bool all = true;
    for (uint32_t d = 0; d < 2 * v.ndim; ++d) all = all && known(plan_.dims[v.first_dim + d]);
    return all;
  }

  Status check_sizes() {
    nbytes_.assign(plan_.values.size(), -1);
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const Value& v = plan_.values[i];
      if (!dims_known(v)) continue;
      if (!value_nbytes(plan_, v, exprs_, &nbytes_[i])) {
        return error(HT_BAD_BUNDLE, "value \"%s\": a size or stride is negative, or it is not below 2^48 bytes",
                     v.name);
      }
      HT_RETURN_IF_ERROR(check_reach(v, nbytes_[i]));
    }
    return Status();
  }

  // Copies, fills and hosts take what the plan writes as numel * itemsize bytes; nothing goes by its strides.
  Status check_reach(const Value& v, int64_t nbytes) const {
    if (is_read_only(v)) return Status();
    int64_t numel_nbytes = nbytes == 0 ? 0 : itemsize(v.dtype);
    bool fits = true;
    for (uint32_t d = 0; d < v.ndim; ++d) {
      fits = fits && checked_mul(numel_nbytes, exprs_[plan_.shape(v)[d]], &numel_nbytes);
    }
    if (fits && numel_nbytes == nbytes) return Status();
    return error(HT_BAD_BUNDLE, "value \"%s\": its strides reach over %lld bytes, its elements have %s", v.name,
                 static_cast<long long>(nbytes), fits ? std::to_string(numel_nbytes).c_str() : "more");
  }

  KnownDims known_dims(const uint32_t* exprs, uint32_t ndim) const {
    KnownDims dims;
    for (uint32_t d = 0; d < ndim; ++d) {
      dims.push_back(known(exprs[d]) ? std::optional<int64_t>(exprs_[exprs[d]]) : std::nullopt);
    }
    return dims;
  }

  Status check_outputs() const {
    for (const uint32_t index : plan_.outputs) {
      const Value& v = plan_.values[index];
      HT_RETURN_IF_ERROR(
          check_row_major(v.name, known_dims(plan_.shape(v), v.ndim), known_dims(plan_.strides(v), v.ndim)));
    }
    return Status();
  }

  Status check_arena() const {
    HT_RETURN_IF_ERROR(check_arena_nbytes(plan_.arena));
    for (const Plan::Read& read : plan_.reads) HT_RETURN_IF_ERROR(check_arena_nbytes(read.arena));
    const std::vector<uint32_t> arenas = arena_of_values();
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const Value& v = plan_.values[i];
      if (v.storage != Storage::arena || !known(v.at)) continue;
      const int64_t arena = known(arenas[i]) ? exprs_[arenas[i]] : -1;
      const int64_t offset = exprs_[v.at];
      if (offset < 0 || offset % 64 != 0) {
        return error(HT_BAD_BUNDLE, "value \"%s\": arena offset %lld is not a multiple of 64", v.name,
                     static_cast<long long>(offset));
      }
      if (arena < 0 || nbytes_[i] < 0) continue;
      if (!range_inside(static_cast<uint64_t>(offset), static_cast<uint64_t>(nbytes_[i]),
                        static_cast<uint64_t>(arena))) {
        return error(HT_BAD_BUNDLE, "value \"%s\": bytes %lld + %lld lie outside the arena of %lld", v.name,
                     static_cast<long long>(offset), static_cast<long long>(nbytes_[i]), static_cast<long long>(arena));
      }
    }
    return Status();
  }

  Status check_arena_nbytes(uint32_t e) const {
    if (!known(e) || (exprs_[e] >= 0 && exprs_[e] < kMaxNbytes)) return Status();
    return error(HT_BAD_BUNDLE, "the arena has %lld bytes, expected 0 to 2^48", static_cast<long long>(exprs_[e]));
  }

  // By value: the arena's nbytes when it is first written. An arena that grows keeps what lies in it.
  std::vector<uint32_t> arena_of_values() const {
    std::vector<uint32_t> arenas(plan_.values.size(), plan_.arena);
    for (const Plan::Lifetime& life : plan_.lifetimes) {
      for (const Plan::Read& read : plan_.reads) {
        if (read.position < life.begin) arenas[life.value] = read.arena;
      }
    }
    return arenas;
  }

  Status check_workspaces() const {
    for (const Instr& i : plan_.instrs) {
      if (i.op != InstrOp::launch || i.has_grid) continue;
      for (const uint32_t e : {i.shared, i.per_worker}) {
        if (!known(e) || (exprs_[e] >= 0 && exprs_[e] < kMaxNbytes)) continue;
        return error(HT_BAD_BUNDLE, "kernel %s: a workspace of %lld bytes", plan_.kernels[i.kernel].name,
                     static_cast<long long>(exprs_[e]));
      }
    }
    return Status();
  }

  // Sweeps over the positions with the live values ordered by offset: a new one may only touch its neighbours.
  Status check_overlaps() const {
    std::vector<Plan::Lifetime> by_begin;
    for (const Plan::Lifetime& life : plan_.lifetimes) {
      if (nbytes_[life.value] > 0 && known(plan_.values[life.value].at)) by_begin.push_back(life);
    }
    std::vector<Plan::Lifetime> by_end = by_begin;
    std::sort(by_end.begin(), by_end.end(),
              [](const Plan::Lifetime& a, const Plan::Lifetime& b) { return a.end < b.end; });
    std::map<int64_t, uint32_t> live;  // offset -> value
    size_t ended = 0;
    for (const Plan::Lifetime& life : by_begin) {
      for (; by_end[ended].end < life.begin; ++ended) live.erase(offset(by_end[ended].value));
      const auto after = live.lower_bound(offset(life.value));
      if (after != live.end()) HT_RETURN_IF_ERROR(check_pair(life.value, after->second));
      if (after != live.begin()) HT_RETURN_IF_ERROR(check_pair(std::prev(after)->second, life.value));
      live.emplace_hint(after, offset(life.value), life.value);
    }
    return Status();
  }

  int64_t offset(uint32_t value) const { return exprs_[plan_.values[value].at]; }

  Status check_pair(uint32_t lower, uint32_t upper) const {
    if (nbytes_[lower] <= offset(upper) - offset(lower)) return Status();
    return error(HT_BAD_BUNDLE,
                 "values \"%s\" (arena bytes %lld + %lld) and \"%s\" (%lld + %lld) are alive together and overlap",
                 plan_.values[lower].name, static_cast<long long>(offset(lower)),
                 static_cast<long long>(nbytes_[lower]), plan_.values[upper].name,
                 static_cast<long long>(offset(upper)), static_cast<long long>(nbytes_[upper]));
  }

  const Plan& plan_;
  const int64_t* exprs_;
  size_t num_syms_;
  std::vector<int64_t>& nbytes_;
};

}  // namespace

bool value_nbytes(const Plan& plan, const Value& v, const int64_t* exprs, int64_t* nbytes) {
  int64_t last = 0;  // index of the last element
  bool empty = false, fits = true;
  for (uint32_t d = 0; d < v.ndim; ++d) {
    const int64_t size = exprs[plan.shape(v)[d]], stride = exprs[plan.strides(v)[d]];
    if (size < 0 || stride < 0) return false;
    if (size == 0) {
      empty = true;
      continue;
    }
    int64_t reach = 0;
    fits = fits && checked_mul(size - 1, stride, &reach) && checked_add(last, reach, &last) && last < kMaxNbytes;
  }
  *nbytes = empty ? 0 : (last + 1) * itemsize(v.dtype);  // below 2^48 * 8 + 8: no overflow
  return empty || (fits && *nbytes < kMaxNbytes);
}

Status check_places(const Plan& plan, const int64_t* exprs, size_t num_syms, std::vector<int64_t>* nbytes) {
  return Places(plan, exprs, num_syms, nbytes).check();
}

}  // namespace hardtack::rt
