#include <algorithm>
#include <unordered_map>

#include "plan_verify.h"

namespace hardtack::rt {
namespace {

// Walks the body in execution order. Positions count instructions; a `while` is entered once, because what its body
// reads must be defined on the first pass already (docs/plan.md, rules 3 and 6).
class Flow {
 public:
  explicit Flow(Plan* plan)
      : plan_(*plan),
        defined_(plan->values.size(), false),
        begin_(plan->values.size(), kNone),
        end_(plan->values.size(), 0),
        seen_at_(plan->values.size(), kNone),
        written_at_(plan->values.size(), kNone),
        kept_in_(plan->values.size(), 0) {
    number_objects();
  }

  Status check() {
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const Storage s = plan_.values[i].storage;
      defined_[i] = s == Storage::input || s == Storage::constant || s == Storage::state;
    }
    HT_RETURN_IF_ERROR(visit(plan_.body));
    for (const uint32_t v : plan_.outputs) {
      if (!defined_[v]) return error(HT_BAD_BUNDLE, "output \"%s\" is not written on every path", plan_.values[v].name);
    }
    store_lifetimes();
    return Status();
  }

 private:
  // What an argument's memory belongs to, as a number: two values of one input, output or state are one object. Values
  // of the arena are apart when they are alive together (check_places); constants are never written.
  void number_objects() {
    std::unordered_map<uint64_t, uint32_t> first_value;
    for (uint32_t v = 0; v < plan_.values.size(); ++v) {
      const Value& value = plan_.values[v];
      const bool shared = value.storage != Storage::arena && value.storage != Storage::constant;
      const uint64_t key = uint64_t{static_cast<uint8_t>(value.storage)} << 32 | value.at;
      object_.push_back(shared ? first_value.emplace(key, v).first->second : v);
    }
  }

  Status visit(uint32_t first) {
    for (uint32_t i = first; i != kNone; i = plan_.instrs[i].next) {
      const Instr& instr = plan_.instrs[i];
      switch (instr.op) {
        case InstrOp::launch: HT_RETURN_IF_ERROR(launch(instr)); break;
        case InstrOp::copy: HT_RETURN_IF_ERROR(copy(instr)); break;
        case InstrOp::fill:
          ++position_;
          HT_RETURN_IF_ERROR(define(instr.dst));
          break;
        case InstrOp::branch: HT_RETURN_IF_ERROR(branch(instr)); break;
        case InstrOp::loop: HT_RETURN_IF_ERROR(loop(instr)); break;
        case InstrOp::read:
          ++position_;
          HT_RETURN_IF_ERROR(size(instr.src));
          plan_.reads.push_back({position_, instr.arena});
          break;
      }
    }
    return Status();
  }

  Status launch(const Instr& i) {
    ++position_;
    const Kernel& kernel = plan_.kernels[i.kernel];
    if (i.num_buffers != kernel.num_buffers || i.num_ints != kernel.num_ints) {
      return error(HT_BAD_BUNDLE, "kernel %s: launched with %u buffers and %u ints, its params are %u and %u",
                   kernel.name, i.num_buffers, i.num_ints, kernel.num_buffers, kernel.num_ints);
    }
    const BufferParam* params = plan_.params.data() + kernel.first_param;
    for (uint32_t k = 0; k < i.num_buffers; ++k) {
      const uint32_t v = plan_.buffers(i)[k];
      if (plan_.values[v].dtype != params[k].dtype) {
        return error(HT_BAD_BUNDLE, "kernel %s: argument %u \"%s\" is %s, expected %s", kernel.name, k,
                     plan_.values[v].name, dtype_name(plan_.values[v].dtype), dtype_name(params[k].dtype));
      }
      if (params[k].access != Access::write) HT_RETURN_IF_ERROR(use(v));
      const size_t at = object_[v];
      if (written_at_[at] == position_ || (params[k].access != Access::read && seen_at_[at] == position_)) {
        return error(HT_BAD_BUNDLE, "kernel %s: argument %u \"%s\" shares memory with another, and one is written",
                     kernel.name, k, plan_.values[v].name);
      }
      seen_at_[at] = position_;
      if (params[k].access != Access::read) written_at_[at] = position_;
    }
    for (uint32_t k = 0; k < i.num_buffers; ++k) {
      if (params[k].access != Access::read) HT_RETURN_IF_ERROR(define(plan_.buffers(i)[k]));
    }
    return Status();
  }

  Status copy(const Instr& i) {
    ++position_;
    const Value& src = plan_.values[i.src];
    const Value& dst = plan_.values[i.dst];
    bool same = src.dtype == dst.dtype && src.ndim == dst.ndim;
    for (uint32_t d = 0; same && d < 2 * src.ndim; ++d) {
      same = same_expr(plan_.dims[src.first_dim + d], plan_.dims[dst.first_dim + d]);
    }
    if (!same) {
      return error(HT_BAD_BUNDLE, "copy from \"%s\" to \"%s\": dtype, shape or strides differ", src.name, dst.name);
    }
    if (object_[i.src] == object_[i.dst]) {
      return error(HT_BAD_BUNDLE, "copy from \"%s\" to \"%s\": the same storage", src.name, dst.name);
    }
    HT_RETURN_IF_ERROR(use(i.src));
    return define(i.dst);
  }

  Status branch(const Instr& i) {
    ++position_;
    HT_RETURN_IF_ERROR(condition(i.cond));
    const size_t mark = trail_.size();
    HT_RETURN_IF_ERROR(visit(i.first));
    const std::vector<uint32_t> in_then(trail_.begin() + static_cast<std::ptrdiff_t>(mark), trail_.end());
    forget(mark);
    HT_RETURN_IF_ERROR(visit(i.second));
    ++branches_;
    for (size_t k = mark; k < trail_.size(); ++k) kept_in_[trail_[k]] = branches_;
    forget(mark);
    for (const uint32_t v : in_then) {
      if (kept_in_[v] == branches_) mark_defined(v);
    }
    return Status();
  }

  Status loop(const Instr& i) {
    const uint32_t start = position_ + 1;
    const size_t touched_mark = touched_.size();
    ++loop_depth_;
    HT_RETURN_IF_ERROR(visit(i.first));
    ++position_;
    HT_RETURN_IF_ERROR(condition(i.cond));
    const size_t mark = trail_.size();
    HT_RETURN_IF_ERROR(visit(i.second));
    forget(mark);
    // What came in from outside is needed again in the next pass.
    for (size_t k = touched_mark; k < touched_.size(); ++k) {
      const uint32_t v = touched_[k];
      if (begin_[v] < start) end_[v] = position_;
    }
    if (--loop_depth_ == 0) touched_.clear();
    return Status();
  }

  bool has_one_element(const Value& value) const {
    bool one = true;
    for (uint32_t d = 0; d < value.ndim; ++d) {
      const uint32_t e = plan_.shape(value)[d];
      one = one && plan_.exprs.is_constant(e) && plan_.exprs.constant(e) == 1;
    }
    return one;
  }

  Status size(uint32_t v) {
    const Value& value = plan_.values[v];
    if (value.dtype == DType::i64 && has_one_element(value)) return use(v);
    return error(HT_BAD_BUNDLE, "size \"%s\" is not an i64 of one element", value.name);
  }

  Status condition(uint32_t v) {
    const Value& value = plan_.values[v];
    if (value.dtype != DType::boolean || !has_one_element(value))
      return error(HT_BAD_BUNDLE, "condition \"%s\" is not a bool of one element", value.name);
    return use(v);
  }

  Status use(uint32_t v) {
    if (!defined_[v]) return error(HT_BAD_BUNDLE, "value \"%s\" is read before it is written", plan_.values[v].name);
    touch(v);
    return Status();
  }

  Status define(uint32_t v) {
    if (is_read_only(plan_.values[v])) {
      const bool input = plan_.values[v].storage == Storage::input;
      return error(HT_BAD_BUNDLE, "value \"%s\" is written, but it is %s", plan_.values[v].name,
                   input ? "an input" : "a constant");
    }
    if (begin_[v] == kNone) begin_[v] = position_;
    touch(v);
    mark_defined(v);
    return Status();
  }

  void mark_defined(uint32_t v) {
    if (defined_[v]) return;
    defined_[v] = true;
    trail_.push_back(v);
  }

  void forget(size_t mark) {
    for (size_t k = mark; k < trail_.size(); ++k) defined_[trail_[k]] = false;
    trail_.resize(mark);
  }

  void touch(uint32_t v) {
    end_[v] = std::max(end_[v], position_);
    if (loop_depth_ > 0) touched_.push_back(v);
  }

  bool same_expr(uint32_t a, uint32_t b) const {
    if (a == b) return true;
    return plan_.exprs.is_constant(a) && plan_.exprs.is_constant(b) &&
           plan_.exprs.constant(a) == plan_.exprs.constant(b);
  }

  void store_lifetimes() {
    for (uint32_t v = 0; v < plan_.values.size(); ++v) {
      if (plan_.values[v].storage == Storage::arena && begin_[v] != kNone) {
        plan_.lifetimes.push_back({v, begin_[v], end_[v]});
      }
    }
    std::sort(plan_.lifetimes.begin(), plan_.lifetimes.end(),
              [](const Plan::Lifetime& a, const Plan::Lifetime& b) { return a.begin < b.begin; });
  }

  Plan& plan_;
  std::vector<bool> defined_;
  std::vector<uint32_t> begin_, end_;           // positions of the first write and the last use, by value
  std::vector<uint32_t> object_;                // the first value with the same storage, by value
  std::vector<uint32_t> seen_at_, written_at_;  // the last launch that names an object, or writes it
  std::vector<uint32_t> kept_in_;               // the last branch whose `else` defined the value
  std::vector<uint32_t> trail_;                 // values in the order they became defined
  std::vector<uint32_t> touched_;               // values used inside the loops around the current place
  uint32_t position_ = 0;
  uint32_t branches_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Status check_flow(Plan* plan) { return Flow(plan).check(); }

}  // namespace hardtack::rt
