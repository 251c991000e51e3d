#include "plan_verify.h"

namespace hardtack::rt {
namespace {

// Walks the body in execution order with the number of symbols that are known so far.
class Reads {
 public:
  explicit Reads(const Plan& plan) : plan_(plan), num_known_(plan.num_input_syms) {}

  Status check() {
    for (size_t s = 0; s < plan_.syms.size(); ++s) {
      if ((plan_.syms[s].input == kNone) == (s >= num_known_)) continue;
      return error(HT_BAD_BUNDLE, "symbol \"%s\" is bound by an input and stands behind one that is read",
                   plan_.syms[s].name);
    }
    for (const uint32_t v : plan_.inputs) HT_RETURN_IF_ERROR(value(v));
    if (!known(plan_.arena)) return late("the arena");
    HT_RETURN_IF_ERROR(visit(plan_.body, true));
    if (num_known_ == plan_.syms.size()) return Status();
    return error(HT_BAD_BUNDLE, "symbol \"%s\" is bound by no input and read nowhere", plan_.syms[num_known_].name);
  }

 private:
  bool known(uint32_t e) const { return plan_.exprs.is_known(e, num_known_); }
  bool all_known(const std::vector<uint32_t>& exprs, uint32_t first, uint32_t count) const {
    bool all = true;
    for (uint32_t k = first; k < first + count; ++k) all = all && known(exprs[k]);
    return all;
  }

  Status late(const char* what) const { return error(HT_BAD_BUNDLE, "%s depends on a symbol before it is read", what); }

  Status value(uint32_t index) const {
    const Value& v = plan_.values[index];
    const bool placed = v.storage != Storage::arena || known(v.at);
    return placed && all_known(plan_.dims, v.first_dim, 2 * v.ndim) ? Status() : late(v.name);
  }

  Status visit(uint32_t first, bool outermost) {
    for (uint32_t at = first; at != kNone; at = plan_.instrs[at].next) {
      const Instr& i = plan_.instrs[at];
      switch (i.op) {
        case InstrOp::launch: HT_RETURN_IF_ERROR(launch(i)); break;
        case InstrOp::copy:
          HT_RETURN_IF_ERROR(value(i.src));
          HT_RETURN_IF_ERROR(value(i.dst));
          break;
        case InstrOp::fill: HT_RETURN_IF_ERROR(value(i.dst)); break;
        case InstrOp::branch:
        case InstrOp::loop:
          HT_RETURN_IF_ERROR(value(i.cond));
          HT_RETURN_IF_ERROR(visit(i.first, false));
          HT_RETURN_IF_ERROR(visit(i.second, false));
          break;
        case InstrOp::read: HT_RETURN_IF_ERROR(read(i, outermost)); break;
      }
    }
    return Status();
  }

  Status read(const Instr& i, bool outermost) {
    const char* name = plan_.syms[i.sym].name;
    if (!outermost) return error(HT_BAD_BUNDLE, "symbol \"%s\" is read inside of an if or a while", name);
    if (i.sym != num_known_) {
      return error(HT_BAD_BUNDLE, "symbol \"%s\" is read, where symbol %zu is expected", name, num_known_);
    }
    HT_RETURN_IF_ERROR(value(i.src));
    ++num_known_;
    return known(i.arena) ? Status() : late("the arena");
  }

  Status launch(const Instr& i) const {
    for (uint32_t k = 0; k < i.num_buffers; ++k) HT_RETURN_IF_ERROR(value(plan_.buffers(i)[k]));
    bool all = all_known(plan_.args, i.first_arg + i.num_buffers, i.num_ints);
    for (int axis = 0; i.has_grid && axis < 3; ++axis) all = all && known(i.grid[axis]);
    if (!i.has_grid) all = all && known(i.shared) && known(i.per_worker);
    for (uint32_t m = i.first_map; m < i.first_map + i.num_maps; ++m) {
      const MapSource& source = plan_.map_sources[m];
      all = all && known(source.offset) && all_known(plan_.map_dims, source.first_dim, 2 * source.ndim);
    }
    const Call& call = plan_.calls[i.call];
    for (uint32_t n = call.first_list; n < call.first_list + call.num_lists; ++n) {
      const AccessList& list = plan_.access_lists[n];
      for (uint32_t a = list.first; a < list.first + list.count; ++a) {
        const AccessBox& box = plan_.accesses[a];
        all = all && known(box.offset) && all_known(plan_.access_dims, box.first_dim, 2 * box.ndim);
      }
    }
    return all ? Status() : late(("kernel " + std::string(plan_.kernels[i.kernel].name)).c_str());
  }

  const Plan& plan_;
  size_t num_known_;
};

}  // namespace

Status check_reads(const Plan& plan) { return Reads(plan).check(); }

}  // namespace hardtack::rt
