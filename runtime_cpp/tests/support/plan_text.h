// Writes plans as JSON text for the tests, without the Python planner. Fields are public: a test that wants a broken
// plan changes one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hardtack::testing {

std::string join(const std::vector<std::string>& parts);
std::string numbers(const std::vector<int>& list);

class PlanText {
 public:
  std::string entry = "forward";
  std::string target = "cpu:test";
  std::vector<std::string> exprs, guards, kernels, body, syms, values;
  std::vector<std::string> origins = {R"(["model.py",31,"aten.add","model.block","y = a + b"])"};
  std::vector<int> inputs, outputs;
  int arena = -1;

  /// Numbers of expressions; equal texts are one expression.
  int expr(const std::string& text);
  int n(int64_t value);
  int sym(int index);
  int op(const std::string& name, const std::vector<int>& operands);

  /// Adds a value and returns its number. Contiguous strides are computed for constant shapes only: give them
  /// otherwise.
  int value(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
            const std::vector<int>& strides, const std::string& storage);
  int input(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
            const std::vector<int>& strides);
  int output(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
             const std::vector<int>& strides);
  int in_arena(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
               const std::vector<int>& strides, int offset_expr);

  void symbol(const std::string& name, int64_t lo, const std::string& hi, int input, const std::string& dim);
  void guard(const std::string& relation, int a, int b, const std::string& text);
  /// `params`: "r:f32", "w:f32", "rw:i64", then "int". Returns the kernel's number. Launches declare their calls.
  int kernel(const std::string& name, const std::vector<std::string>& params);

  std::string launch(int kernel, const std::vector<int>& buffers, const std::vector<int>& ints, int64_t shared = 0,
                     int64_t per_worker = 0);
  /// On a GPU; `grid` are expressions, `maps` is JSON.
  std::string gpu_launch(int kernel, const std::vector<int>& buffers, const std::vector<int>& ints,
                         const std::vector<int>& grid, const std::string& maps = "[]");
  std::string copy(int src, int dst) const;
  std::string fill(int dst, int64_t bits) const;
  std::string branch(int cond, const std::vector<std::string>& then, const std::vector<std::string>& orelse) const;
  std::string loop(const std::vector<std::string>& cond_body, int cond, const std::vector<std::string>& body) const;

  std::string json();

 private:
  void declare(int kernel, size_t num_buffers, const std::vector<int>& ints, const std::string& head,
               const std::string& tail);
};

}  // namespace hardtack::testing
