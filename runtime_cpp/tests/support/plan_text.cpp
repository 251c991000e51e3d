#include "support/plan_text.h"

#include <algorithm>

namespace hardtack::testing {
namespace {

std::string text(int64_t value) { return std::to_string(value); }

// How many elements of each buffer the test kernels access; kernels.c has them.
std::vector<int> numels(PlanText* p, const std::string& kernel, size_t num_buffers, const std::vector<int>& ints) {
  const bool sized = !ints.empty() && (kernel.find("_f32") != std::string::npos);
  std::vector<int> out(num_buffers, sized ? ints[0] : p->n(1));
  if (kernel.find("sum_rows") == 0 && ints.size() > 1) out[0] = p->op("mul", ints);
  if (kernel.find("gather") == 0 && ints.size() > 1) out[0] = ints[1];
  return out;
}

}  // namespace

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return "[" + out + "]";
}

std::string numbers(const std::vector<int>& list) {
  std::vector<std::string> parts;
  for (const int n : list) parts.push_back(text(n));
  return join(parts);
}

int PlanText::expr(const std::string& t) {
  const auto found = std::find(exprs.begin(), exprs.end(), t);
  if (found != exprs.end()) return static_cast<int>(found - exprs.begin());
  exprs.push_back(t);
  return static_cast<int>(exprs.size()) - 1;
}

int PlanText::n(int64_t value) { return expr("[\"const\"," + text(value) + "]"); }
int PlanText::sym(int index) { return expr("[\"sym\"," + text(index) + "]"); }

int PlanText::op(const std::string& name, const std::vector<int>& operands) {
  if (name == "div" || name == "mod") {
    return expr("[\"" + name + "\"," + text(operands[0]) + "," + text(operands[1]) + "]");
  }
  return expr("[\"" + name + "\"," + numbers(operands) + "]");
}

int PlanText::value(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
                    const std::vector<int>& strides, const std::string& storage) {
  values.push_back("{\"dtype\":\"" + dtype + "\",\"name\":\"" + name + "\",\"shape\":" + numbers(shape) +
                   ",\"storage\":" + storage + ",\"strides\":" + numbers(strides) + "}");
  return static_cast<int>(values.size()) - 1;
}

int PlanText::input(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
                    const std::vector<int>& strides) {
  inputs.push_back(value(name, dtype, shape, strides, "[\"input\"," + text(static_cast<int64_t>(inputs.size())) + "]"));
  return inputs.back();
}

int PlanText::output(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
                     const std::vector<int>& strides) {
  outputs.push_back(
      value(name, dtype, shape, strides, "[\"output\"," + text(static_cast<int64_t>(outputs.size())) + "]"));
  return outputs.back();
}

int PlanText::in_arena(const std::string& name, const std::string& dtype, const std::vector<int>& shape,
                       const std::vector<int>& strides, int offset_expr) {
  return value(name, dtype, shape, strides, "[\"arena\"," + text(offset_expr) + "]");
}

void PlanText::symbol(const std::string& name, int64_t lo, const std::string& hi, int input, const std::string& dim) {
  syms.push_back("{\"dim\":" + dim + ",\"hi\":" + hi + ",\"input\":" + text(input) + ",\"lo\":" + text(lo) +
                 ",\"name\":\"" + name + "\"}");
}

void PlanText::guard(const std::string& relation, int a, int b, const std::string& t) {
  guards.push_back("{\"a\":" + text(a) + ",\"b\":" + text(b) + ",\"relation\":\"" + relation + "\",\"text\":\"" + t +
                   "\"}");
}

int PlanText::kernel(const std::string& name, const std::vector<std::string>& params) {
  std::vector<std::string> parts;
  for (const std::string& param : params) {
    if (param == "int") {
      parts.push_back("[\"int\"]");
      continue;
    }
    const size_t colon = param.find(':');
    const std::string access = param.substr(0, colon);
    parts.push_back("[\"buffer\",\"" + param.substr(colon + 1) + "\",\"" +
                    (access == "r"   ? "read"
                     : access == "w" ? "write"
                                     : "readwrite") +
                    "\"]");
  }
  kernels.push_back("{\"calls\":[],\"name\":\"" + name + "\",\"params\":" + join(parts) + "}");
  return static_cast<int>(kernels.size()) - 1;
}

// Each launch is a call that its kernel declares.
void PlanText::declare(int kernel, size_t num_buffers, const std::vector<int>& ints, const std::string& head,
                       const std::string& tail) {
  if (static_cast<size_t>(kernel) >= kernels.size()) return;
  std::string& record = kernels[static_cast<size_t>(kernel)];
  const size_t name = record.find("\"name\":\"") + 8, params = record.find("\"params\"");
  const std::vector<int> counts = numels(this, record.substr(name, record.find('"', name) - name), num_buffers, ints);
  std::vector<std::string> lists;
  size_t param = params;
  for (const int count : counts) {
    param = record.find("[\"buffer\"", param + 1);
    const std::string item = param == std::string::npos ? "" : record.substr(param, record.find(']', param) - param);
    const bool fills = item.find("\"write\"") != std::string::npos;
    const std::string one = text(n(1)), zero = text(n(0));
    lists.push_back(std::string("[[\"") + (fills ? "fill" : "touch") + "\"," + zero + ",[" + text(count) + "],[" + one +
                    "]]]");
  }
  const std::string call = "{\"accesses\":" + join(lists) + head + ",\"ints\":" + numbers(ints) + tail + "}";
  if (record.find(call) != std::string::npos) return;
  const size_t at = record.find("\"calls\":[") + 9;
  record.insert(at, call + (record[at] == ']' ? "" : ","));
}

std::string PlanText::launch(int kernel, const std::vector<int>& buffers, const std::vector<int>& ints, int64_t shared,
                             int64_t per_worker) {
  // One after the other: in one expression compilers differ in what they call first, and so in the numbers.
  const std::string of_all = text(n(shared)), of_each = text(n(per_worker));
  const std::string workspaces = "\"per_worker\":" + of_each + ",\"shared\":" + of_all;
  declare(kernel, buffers.size(), ints, "", "," + workspaces);
  return "{\"buffers\":" + numbers(buffers) + ",\"ints\":" + numbers(ints) + ",\"kernel\":" + text(kernel) +
         ",\"op\":\"launch\",\"origin\":0," + workspaces + "}";
}

std::string PlanText::gpu_launch(int kernel, const std::vector<int>& buffers, const std::vector<int>& ints,
                                 const std::vector<int>& grid, const std::string& maps) {
  declare(kernel, buffers.size(), ints, ",\"grid\":" + numbers(grid), "");
  return "{\"buffers\":" + numbers(buffers) + ",\"grid\":" + numbers(grid) + ",\"ints\":" + numbers(ints) +
         ",\"kernel\":" + text(kernel) + ",\"maps\":" + maps + ",\"op\":\"launch\",\"origin\":0}";
}

std::string PlanText::copy(int src, int dst) const {
  return "{\"dst\":" + text(dst) + ",\"op\":\"copy\",\"origin\":0,\"src\":" + text(src) + "}";
}

std::string PlanText::fill(int dst, int64_t bits) const {
  return "{\"bits\":" + text(bits) + ",\"dst\":" + text(dst) + ",\"op\":\"fill\",\"origin\":0}";
}

std::string PlanText::branch(int cond, const std::vector<std::string>& then,
                             const std::vector<std::string>& orelse) const {
  return "{\"cond\":" + text(cond) + ",\"else\":" + join(orelse) +
         ",\"op\":\"if\",\"origin\":0,\"then\":" + join(then) + "}";
}

std::string PlanText::loop(const std::vector<std::string>& cond_body, int cond,
                           const std::vector<std::string>& loop_body) const {
  return "{\"body\":" + join(loop_body) + ",\"cond\":" + text(cond) + ",\"cond_body\":" + join(cond_body) +
         ",\"op\":\"while\",\"origin\":0}";
}

std::string PlanText::json() {
  if (arena < 0) arena = n(0);
  return "{\"arena\":" + text(arena) + ",\"body\":" + join(body) + ",\"entry\":\"" + entry +
         "\",\"exprs\":" + join(exprs) + ",\"format\":2,\"guards\":" + join(guards) + ",\"inputs\":" + numbers(inputs) +
         ",\"kernels\":" + join(kernels) + ",\"origins\":" + join(origins) + ",\"outputs\":" + numbers(outputs) +
         ",\"syms\":" + join(syms) + ",\"target\":\"" + target + "\",\"values\":" + join(values) + "}";
}

}  // namespace hardtack::testing
