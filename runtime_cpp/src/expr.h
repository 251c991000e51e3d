// Integer expressions of a plan: a table in which every node refers only to earlier ones (docs/plan.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "status.h"

namespace hardtack::rt {

enum class ExprOp : uint8_t { constant, sym, add, mul, div, mod, min, max };

struct Expr {
  ExprOp op = ExprOp::constant;
  int64_t value = 0;   // constant: the number; sym: its index
  uint32_t first = 0;  // operands[first, first + count)
  uint32_t count = 0;
};

/// What is known of a value: lo <= value <= hi. INT64_MIN and INT64_MAX stand for "no bound known".
struct Interval {
  int64_t lo = INT64_MIN;
  int64_t hi = INT64_MAX;
};

/// Why an expression has no value.
enum class ExprFault : uint8_t { none, overflow, divisor };

class ExprTable {
 public:
  std::vector<Expr> nodes;
  std::vector<uint32_t> operands;

  size_t size() const { return nodes.size(); }

  /// Checks the order, the operand counts and the symbol indices; then finds which nodes are constant, computes those,
  /// and bounds the others by the symbols' ranges. HT_BAD_BUNDLE when a node can have no value within those ranges.
  Status analyse(const std::vector<Interval>& syms);

  /// After `analyse`:
  bool is_constant(uint32_t e) const { return constant_[e]; }
  /// The value of a constant node.
  int64_t constant(uint32_t e) const { return values_[e]; }
  Interval bounds(uint32_t e) const { return bounds_[e]; }
  /// Values of the constant nodes, 0 for the others: what `evaluate` starts from.
  const std::vector<int64_t>& constants() const { return values_; }

  /// Whether the first `num_syms` symbols decide the node's value; with 0: whether it is constant.
  bool is_known(uint32_t e, size_t num_syms) const { return needs_[e] <= num_syms; }

  /// Computes all nodes that are not constant and that the first `num_syms` symbols decide. `values` starts as a copy of
  /// constants(). On a fault returns it and the node.
  ExprFault evaluate(const int64_t* syms, size_t num_syms, int64_t* values, uint32_t* node) const;

 private:
  Status check(size_t num_syms) const;
  ExprFault compute(const Expr& e, const int64_t* values, int64_t* result) const;
  Interval bound(const Expr& e, bool* impossible) const;

  std::vector<bool> constant_;
  std::vector<uint32_t> needs_;  // how many of the symbols, from the first on
  std::vector<int64_t> values_;
  std::vector<Interval> bounds_;
  std::vector<uint32_t> dynamic_;
};

const char* fault_text(ExprFault fault);

}  // namespace hardtack::rt
