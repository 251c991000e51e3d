// Expressions: values, faults, bounds.
#include <doctest/doctest.h>

#include <optional>

#include "checked.h"
#include "expr.h"

using namespace hardtack::rt;

namespace {

struct Builder {
  ExprTable table;
  uint32_t add(ExprOp op, int64_t value, const std::vector<uint32_t>& operands = {}) {
    Expr e;
    e.op = op;
    e.value = value;
    e.first = static_cast<uint32_t>(table.operands.size());
    e.count = static_cast<uint32_t>(operands.size());
    table.operands.insert(table.operands.end(), operands.begin(), operands.end());
    table.nodes.push_back(e);
    return static_cast<uint32_t>(table.nodes.size()) - 1;
  }
  uint32_t n(int64_t value) { return add(ExprOp::constant, value); }
  uint32_t sym(int64_t index) { return add(ExprOp::sym, index); }
};

}  // namespace

TEST_CASE("floor division and modulo are Python's") {
  const int64_t cases[][4] = {{7, 2, 3, 1},
                              {-7, 2, -4, 1},
                              {-8, 2, -4, 0},
                              {0, 5, 0, 0},
                              {-1, 5, -1, 4},
                              {INT64_MIN, 1, INT64_MIN, 0},
                              {INT64_MIN, INT64_MAX, -2, INT64_MAX - 1}};
  for (const auto& c : cases) {
    CHECK(floor_div(c[0], c[1]) == c[2]);
    CHECK(floor_mod(c[0], c[1]) == c[3]);
  }
}

TEST_CASE("ranges are compared without sums that wrap") {
  CHECK(range_inside(0, 10, 10));
  CHECK_FALSE(range_inside(1, 10, 10));
  CHECK_FALSE(range_inside(UINT64_MAX, 1, 10));
  CHECK_FALSE(range_inside(5, UINT64_MAX, 10));
  CHECK(range_inside(10, 0, 10));
  CHECK(ranges_overlap(0, 4, 3, 1));
  CHECK_FALSE(ranges_overlap(0, 4, 4, 4));
  CHECK_FALSE(ranges_overlap(2, 0, 0, 8));
  CHECK(ranges_overlap(UINT64_MAX - 1, 1, UINT64_MAX - 3, 3));
}

TEST_CASE("constants are computed at load, symbols at bind") {
  Builder b;
  const uint32_t s = b.sym(0), three = b.n(3), five = b.n(5);
  const uint32_t fifteen = b.add(ExprOp::mul, 0, {three, five});
  const uint32_t sum = b.add(ExprOp::add, 0, {s, fifteen, three});
  const uint32_t quotient = b.add(ExprOp::div, 0, {sum, five});
  const uint32_t rest = b.add(ExprOp::mod, 0, {sum, five});
  const uint32_t low = b.add(ExprOp::min, 0, {sum, five, three}), high = b.add(ExprOp::max, 0, {sum, five});
  REQUIRE(b.table.analyse({{0, 100}}).ok());
  CHECK(b.table.is_constant(fifteen));
  CHECK(b.table.constant(fifteen) == 15);
  CHECK_FALSE(b.table.is_constant(sum));
  CHECK(b.table.bounds(sum).lo == 18);
  CHECK(b.table.bounds(sum).hi == 118);
  CHECK(b.table.bounds(quotient).lo == 3);
  CHECK(b.table.bounds(quotient).hi == 23);
  CHECK(b.table.bounds(rest).hi == 4);
  std::vector<int64_t> values = b.table.constants();
  const int64_t syms[] = {4};
  uint32_t node = 0;
  REQUIRE(b.table.evaluate(syms, 64, values.data(), &node) == ExprFault::none);
  CHECK(values[sum] == 22);
  CHECK(values[quotient] == 4);
  CHECK(values[rest] == 2);
  CHECK(values[low] == 3);
  CHECK(values[high] == 22);
}

TEST_CASE("overflow and bad divisors are refused at load where they are certain") {
  {
    Builder b;
    b.add(ExprOp::add, 0, {b.n(INT64_MAX), b.n(1)});
    CHECK(std::string(b.table.analyse({}).message()) == "expression 2 does not fit into 64 bits");
  }
  {
    Builder b;
    b.add(ExprOp::div, 0, {b.n(5), b.n(0)});
    CHECK(std::string(b.table.analyse({}).message()) == "expression 2 divides by less than 1");
  }
  {
    Builder b;
    const uint32_t s = b.sym(0);
    b.add(ExprOp::mul, 0, {s, b.n(INT64_MAX - 1)});
    CHECK(std::string(b.table.analyse({{2, 9}}).message()) == "expression 2 has no value within the symbols' ranges");
  }
}

TEST_CASE("overflow and bad divisors that depend on a size are found when it is bound") {
  Builder b;
  const uint32_t s = b.sym(0);
  b.add(ExprOp::mul, 0, {s, s});
  b.add(ExprOp::div, 0, {b.n(8), s});
  REQUIRE(b.table.analyse({{0, INT64_MAX}}).ok());
  std::vector<int64_t> values = b.table.constants();
  uint32_t node = 0;
  int64_t syms[] = {int64_t{1} << 40};
  CHECK(b.table.evaluate(syms, 64, values.data(), &node) == ExprFault::overflow);
  CHECK(node == 1);
  syms[0] = 0;
  CHECK(b.table.evaluate(syms, 64, values.data(), &node) == ExprFault::divisor);
  CHECK(node == 3);
}

TEST_CASE("bounds hold for every value: brute force over small ranges") {
  // f(s, t) for each operation over intervals that cross zero.
  for (const ExprOp op : {ExprOp::add, ExprOp::mul, ExprOp::div, ExprOp::mod, ExprOp::min, ExprOp::max}) {
    for (int64_t lo = -4; lo <= 3; ++lo) {
      for (int64_t tlo = 1; tlo <= 3; ++tlo) {
        Builder b;
        const uint32_t s = b.sym(0), t = b.sym(1);
        const uint32_t e = b.add(op, 0, {s, t});
        REQUIRE(b.table.analyse({{lo, lo + 3}, {tlo, tlo + 2}}).ok());
        for (int64_t x = lo; x <= lo + 3; ++x) {
          for (int64_t y = tlo; y <= tlo + 2; ++y) {
            std::vector<int64_t> values = b.table.constants();
            const int64_t syms[] = {x, y};
            uint32_t node = 0;
            REQUIRE(b.table.evaluate(syms, 64, values.data(), &node) == ExprFault::none);
            CHECK(values[e] >= b.table.bounds(e).lo);
            CHECK(values[e] <= b.table.bounds(e).hi);
          }
        }
      }
    }
  }
}

TEST_CASE("symbols without bounds: a bound is claimed only where there is one") {
  Builder b;
  const uint32_t any = b.sym(0), size = b.sym(1), few = b.sym(2), three = b.n(3);
  const uint32_t sum = b.add(ExprOp::add, 0, {any, few}), sizes = b.add(ExprOp::mul, 0, {size, few});
  const uint32_t product = b.add(ExprOp::mul, 0, {any, few}), quotient = b.add(ExprOp::div, 0, {any, three});
  const uint32_t half = b.add(ExprOp::div, 0, {size, three}), rest = b.add(ExprOp::mod, 0, {any, three});
  const uint32_t modulo = b.add(ExprOp::mod, 0, {few, size}), none = b.add(ExprOp::mul, 0, {size, b.n(0)});
  REQUIRE(b.table.analyse({{}, {1, INT64_MAX}, {2, 9}}).ok());
  const auto is = [&](uint32_t e, int64_t lo, int64_t hi) {
    return b.table.bounds(e).lo == lo && b.table.bounds(e).hi == hi;
  };
  CHECK(is(sum, INT64_MIN, INT64_MAX));
  CHECK(is(sizes, 2, INT64_MAX));
  CHECK(is(product, INT64_MIN, INT64_MAX));
  CHECK(is(quotient, INT64_MIN, INT64_MAX));
  CHECK(is(half, 0, INT64_MAX));
  CHECK(is(rest, 0, 2));
  CHECK(is(modulo, 0, 9));
  CHECK(is(none, 0, 0));
  CHECK(std::string(fault_text(ExprFault::none)) == "no fault");
}

TEST_CASE("an expression refers only to earlier ones and known symbols") {
  Builder later;
  later.add(ExprOp::add, 0, {0, 1});
  CHECK(std::string(later.table.analyse({}).message()) == "expression 0: refers to expression 0, which is not earlier");
  Builder symbol;
  symbol.sym(2);
  CHECK(std::string(symbol.table.analyse({{0, 1}}).message()) == "expression 0: no symbol 2");
  Builder lonely;
  lonely.n(1);
  lonely.add(ExprOp::add, 0, {0});
  CHECK(std::string(lonely.table.analyse({}).message()) == "expression 1: wrong number of operands, 1");
}

TEST_CASE("a node is a constant, a symbol, or an operation with as many operands as it takes") {
  Builder negative;
  negative.sym(-1);
  CHECK(std::string(negative.table.analyse({{0, 1}}).message()) == "expression 0: no symbol -1");
  Builder leaf;
  leaf.add(ExprOp::constant, 1, {0});
  CHECK(std::string(leaf.table.analyse({}).message()) == "expression 0: wrong number of operands, 1");
  Builder three;
  const uint32_t n = three.n(2);
  three.add(ExprOp::div, 0, {n, n, n});
  CHECK(std::string(three.table.analyse({}).message()) == "expression 1: wrong number of operands, 3");
}

TEST_CASE("bounds of sums and products beyond 64 bits, and of what has no bounds") {
  constexpr int64_t kLow = INT64_MIN, kHigh = INT64_MAX, kHuge = int64_t{1} << 62;
  // The bounds of an operation on two symbols of these ranges; nothing: it has no value that fits.
  const auto of = [](ExprOp op, Interval a, Interval b) -> std::optional<Interval> {
    Builder builder;
    const uint32_t x = builder.sym(0), y = builder.sym(1);
    const uint32_t both = builder.add(op, 0, {x, y});
    if (!builder.table.analyse({a, b}).ok()) return std::nullopt;
    return builder.table.bounds(both);
  };
  const auto is = [](const std::optional<Interval>& found, int64_t lo, int64_t hi) {
    return found && found->lo == lo && found->hi == hi;
  };
  CHECK(is(of(ExprOp::add, {-kHuge, 5}, {-kHuge - 9, 5}), kLow, 10));
  CHECK(is(of(ExprOp::add, {0, kHuge}, {0, kHuge}), 0, kHigh));
  CHECK_FALSE(of(ExprOp::add, {-kHuge - 1, -kHuge}, {-kHuge - 9, -kHuge - 1}));
  CHECK_FALSE(of(ExprOp::add, {kHuge, kHuge + 1}, {kHuge, kHuge + 1}));
  CHECK(is(of(ExprOp::add, {1, 2}, {3, kHigh}), 4, kHigh));
  CHECK(is(of(ExprOp::add, {1, 2}, {kLow, 3}), kLow, 5));
  CHECK(is(of(ExprOp::mul, {2, 3}, {4, kHigh}), 8, kHigh));
  CHECK(is(of(ExprOp::mul, {0, 0}, {4, kHigh}), 0, 0));
  CHECK(is(of(ExprOp::mul, {4, kHigh}, {0, 0}), 0, 0));
  CHECK(is(of(ExprOp::mul, {4, kHigh}, {-1, 2}), kLow, kHigh));
  CHECK(is(of(ExprOp::mul, {-1, 2}, {4, kHigh}), kLow, kHigh));
  CHECK_FALSE(of(ExprOp::mul, {-kHuge, -kHuge + 1}, {4, 5}));
  CHECK_FALSE(of(ExprOp::div, {1, 9}, {-5, 0}));
  CHECK_FALSE(of(ExprOp::mod, {1, 9}, {-5, 0}));
  CHECK(is(of(ExprOp::mod, {1, 9}, {-5, kHigh}), 0, 9));
  CHECK(is(of(ExprOp::div, {-7, -2}, {2, 4}), -4, -1));
}
