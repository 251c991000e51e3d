#include "expr.h"

#include <algorithm>

#include "checked.h"

namespace hardtack::rt {
namespace {

__extension__ typedef __int128 Wide;  // sums and products of two 64-bit numbers fit
constexpr int64_t kLow = INT64_MIN;
constexpr int64_t kHigh = INT64_MAX;

bool bounded(Interval a) { return a.lo != kLow && a.hi != kHigh; }

int64_t clamp(Wide x) { return x < kLow ? kLow : x > kHigh ? kHigh : static_cast<int64_t>(x); }

// Both ends beyond 64 bits on the same side: no value in the symbols' ranges fits.
bool beyond(Wide lo, Wide hi) { return lo > kHigh || hi < kLow; }

Interval add(Interval a, Interval b, bool* impossible) {
  const Wide lo = Wide{a.lo} + b.lo, hi = Wide{a.hi} + b.hi;
  if (bounded(a) && bounded(b) && beyond(lo, hi)) *impossible = true;
  return {a.lo == kLow || b.lo == kLow ? kLow : clamp(lo), a.hi == kHigh || b.hi == kHigh ? kHigh : clamp(hi)};
}

Interval mul(Interval a, Interval b, bool* impossible) {
  if (!bounded(a) || !bounded(b)) {
    // Sizes are the common case: both at least 0.
    if (a.lo < 0 || b.lo < 0) return {};
    const bool no_high = (a.hi == kHigh && b.hi != 0) || (b.hi == kHigh && a.hi != 0);
    return {clamp(Wide{a.lo} * b.lo), no_high ? kHigh : clamp(Wide{a.hi} * b.hi)};
  }
  const Wide corners[] = {Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo, Wide{a.hi} * b.hi};
  const auto [lo, hi] = std::minmax_element(corners, corners + 4);
  if (beyond(*lo, *hi)) *impossible = true;
  return {clamp(*lo), clamp(*hi)};
}

Interval div(Interval a, Interval b, bool* impossible) {
  if (b.hi < 1) *impossible = true;
  const int64_t least = std::max<int64_t>(b.lo, 1), most = std::max<int64_t>(b.hi, 1);
  // Without a bound of its own, the quotient has the dividend's missing bound.
  const int64_t lo = a.lo == kLow ? kLow : floor_div(a.lo, a.lo < 0 ? least : most);
  const int64_t hi = a.hi == kHigh ? kHigh : floor_div(a.hi, a.hi < 0 ? most : least);
  return {lo, hi};
}

Interval mod(Interval a, Interval b, bool* impossible) {
  if (b.hi < 1) *impossible = true;
  int64_t hi = b.hi == kHigh ? kHigh : std::max<int64_t>(b.hi, 1) - 1;
  if (a.lo >= 0) hi = std::min(hi, a.hi);
  return {0, hi};
}

}  // namespace

const char* fault_text(ExprFault fault) {
  switch (fault) {
    case ExprFault::none: return "no fault";
    case ExprFault::overflow: return "does not fit into 64 bits";
    case ExprFault::divisor: return "divides by less than 1";
  }
  return "";
}

Status ExprTable::check(size_t num_syms) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Expr& e = nodes[i];
    const bool leaf = e.op == ExprOp::constant || e.op == ExprOp::sym;
    const bool pair = e.op == ExprOp::div || e.op == ExprOp::mod;
    if (e.op == ExprOp::sym && (e.value < 0 || static_cast<uint64_t>(e.value) >= num_syms)) {
      return error(HT_BAD_BUNDLE, "expression %zu: no symbol %lld", i, static_cast<long long>(e.value));
    }
    if ((leaf && e.count != 0) || (pair && e.count != 2) || (!leaf && e.count < 2)) {
      return error(HT_BAD_BUNDLE, "expression %zu: wrong number of operands, %u", i, e.count);
    }
    for (uint32_t k = 0; k < e.count; ++k) {
      if (operands[e.first + k] >= i) {
        return error(HT_BAD_BUNDLE, "expression %zu: refers to expression %u, which is not earlier", i,
                     operands[e.first + k]);
      }
    }
  }
  return Status();
}

Status ExprTable::analyse(const std::vector<Interval>& syms) {
  HT_RETURN_IF_ERROR(check(syms.size()));
  constant_.assign(nodes.size(), false);
  needs_.assign(nodes.size(), 0);
  values_.assign(nodes.size(), 0);
  bounds_.assign(nodes.size(), Interval());
  dynamic_.clear();
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const Expr& e = nodes[i];
    bool constant = e.op != ExprOp::sym;
    if (e.op == ExprOp::sym) needs_[i] = static_cast<uint32_t>(e.value) + 1;
    for (uint32_t k = 0; k < e.count; ++k) {
      constant = constant && constant_[operands[e.first + k]];
      needs_[i] = std::max(needs_[i], needs_[operands[e.first + k]]);
    }
    if (constant) {
      const ExprFault fault = compute(e, values_.data(), &values_[i]);
      if (fault != ExprFault::none) return error(HT_BAD_BUNDLE, "expression %u %s", i, fault_text(fault));
      constant_[i] = true;
      bounds_[i] = {values_[i], values_[i]};
      continue;
    }
    bool impossible = false;
    bounds_[i] = e.op == ExprOp::sym ? syms[static_cast<size_t>(e.value)] : bound(e, &impossible);
    if (impossible) return error(HT_BAD_BUNDLE, "expression %u has no value within the symbols' ranges", i);
    dynamic_.push_back(i);
  }
  return Status();
}

Interval ExprTable::bound(const Expr& e, bool* impossible) const {
  Interval result = bounds_[operands[e.first]];
  for (uint32_t k = 1; k < e.count; ++k) {
    const Interval b = bounds_[operands[e.first + k]];
    switch (e.op) {
      case ExprOp::add: result = add(result, b, impossible); break;
      case ExprOp::mul: result = mul(result, b, impossible); break;
      case ExprOp::div: result = div(result, b, impossible); break;
      case ExprOp::mod: result = mod(result, b, impossible); break;
      case ExprOp::min: result = {std::min(result.lo, b.lo), std::min(result.hi, b.hi)}; break;
      case ExprOp::max: result = {std::max(result.lo, b.lo), std::max(result.hi, b.hi)}; break;
      case ExprOp::constant:
      case ExprOp::sym: break;
    }
  }
  return result;
}

ExprFault ExprTable::compute(const Expr& e, const int64_t* values, int64_t* result) const {
  const uint32_t* at = operands.data() + e.first;
  int64_t x = e.count > 0 ? values[at[0]] : e.value;
  switch (e.op) {
    case ExprOp::constant:
    case ExprOp::sym: break;
    case ExprOp::add:
      for (uint32_t k = 1; k < e.count; ++k) {
        if (!checked_add(x, values[at[k]], &x)) return ExprFault::overflow;
      }
      break;
    case ExprOp::mul:
      for (uint32_t k = 1; k < e.count; ++k) {
        if (!checked_mul(x, values[at[k]], &x)) return ExprFault::overflow;
      }
      break;
    case ExprOp::div:
    case ExprOp::mod:
      if (values[at[1]] < 1) return ExprFault::divisor;
      x = e.op == ExprOp::div ? floor_div(x, values[at[1]]) : floor_mod(x, values[at[1]]);
      break;
    case ExprOp::min:
      for (uint32_t k = 1; k < e.count; ++k) x = std::min(x, values[at[k]]);
      break;
    case ExprOp::max:
      for (uint32_t k = 1; k < e.count; ++k) x = std::max(x, values[at[k]]);
      break;
  }
  *result = x;
  return ExprFault::none;
}

ExprFault ExprTable::evaluate(const int64_t* syms, size_t num_syms, int64_t* values, uint32_t* node) const {
  for (const uint32_t i : dynamic_) {
    if (!is_known(i, num_syms)) continue;
    const Expr& e = nodes[i];
    if (e.op == ExprOp::sym) {
      values[i] = syms[e.value];
      continue;
    }
    const ExprFault fault = compute(e, values, &values[i]);
    if (fault != ExprFault::none) return *node = i, fault;
  }
  return ExprFault::none;
}

}  // namespace hardtack::rt
