#include "support/samples.h"

#include <doctest/doctest.h>

namespace hardtack::testing {

Sample add_sample() {
  Sample s;
  PlanText& p = s.plan;
  const int s0 = p.sym(0), three = p.n(3), one = p.n(1), zero = p.n(0);
  const int numel = p.op("mul", {three, s0});
  const int nbytes = p.op("mul", {p.n(4), numel});
  const int rounded = p.op("mul", {p.n(64), p.op("div", {p.op("add", {nbytes, p.n(63)}), p.n(64)})});
  const int x = p.input("x", "f32", {s0, three}, {three, one});
  const int y = p.input("y", "f32", {s0, three}, {three, one});
  const int z = p.output("z", "f32", {s0, three}, {three, one});
  const int t = p.in_arena("t", "f32", {s0, three}, {three, one}, zero);
  p.arena = rounded;
  p.symbol("s0", 0, "1000", 0, "0");
  const int add = p.kernel("add_f32", {"r:f32", "r:f32", "w:f32", "int"});
  p.body = {p.launch(add, {x, y, t}, {numel}), p.launch(add, {t, x, z}, {numel})};
  s.entry.inputs = {manifest_tensor("f32", "x", {"\"s0\"", "3"}, {"3", "1"}),
                    manifest_tensor("f32", "y", {"\"s0\"", "3"}, {"3", "1"})};
  s.entry.outputs = {manifest_tensor("f32", "z", {"\"s0\"", "3"}, {"3", "1"})};
  s.entry.syms = {R"({"hi":1000,"lo":0,"name":"s0"})"};
  return s;
}

Sample count_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "count";
  const int n = p.output("n", "i64", {}, {});
  const int count = p.value("count", "i64", {}, {}, R"(["state","count"])");
  const int increase = p.kernel("increase_i64", {"rw:i64", "int"});
  p.body = {p.launch(increase, {count}, {p.n(1)}), p.copy(count, n)};
  s.entry.outputs = {manifest_tensor("i64", "n", {}, {})};
  return s;
}

Sample while_sample(const char* entry, int64_t end, int64_t step) {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = entry;
  const int n = p.output("n", "i64", {}, {});
  const int i = p.in_arena("i", "i64", {}, {}, p.n(0));
  const int go = p.in_arena("go", "bool", {}, {}, p.n(64));
  p.arena = p.n(128);
  const int less = p.kernel("less_i64", {"r:i64", "w:bool", "int"});
  const int increase = p.kernel("increase_i64", {"rw:i64", "int"});
  const std::string increased = p.launch(increase, {i}, {p.n(step)}), compared = p.launch(less, {i, go}, {p.n(end)});
  p.body = {p.fill(i, 0), p.loop({compared}, go, {increased}), p.copy(i, n)};
  s.entry.outputs = {manifest_tensor("i64", "n", {}, {})};
  return s;
}

Sample branch_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "branch";
  const int flag = p.input("flag", "bool", {}, {});
  const int one = p.n(1), four = p.n(4);
  const int out = p.output("out", "i32", {four}, {one});
  p.body = {p.branch(flag, {p.fill(out, 7)}, {p.fill(out, 9)})};
  s.entry.inputs = {manifest_tensor("bool", "flag", {}, {})};
  s.entry.outputs = {manifest_tensor("i32", "out", {"4"}, {"1"})};
  return s;
}

Sample sum_rows_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "rows";
  const int s0 = p.sym(0), s1 = p.sym(1), one = p.n(1);
  const int x = p.input("x", "f32", {s0, s1}, {s1, one});
  const int out = p.output("out", "f32", {s0}, {one});
  p.symbol("s0", 0, "null", 0, "0");
  p.symbol("s1", 1, "null", 0, "1");
  const int sum = p.kernel("sum_rows_f32", {"r:f32", "w:f32", "int", "int"});
  p.body = {p.launch(sum, {x, out}, {s0, s1}, 0, 4)};
  s.entry.inputs = {manifest_tensor("f32", "x", {"\"s0\"", "\"s1\""}, {"\"s1\"", "1"})};
  s.entry.outputs = {manifest_tensor("f32", "out", {"\"s0\""}, {"1"})};
  s.entry.syms = {R"({"hi":null,"lo":0,"name":"s0"})", R"({"hi":null,"lo":1,"name":"s1"})"};
  return s;
}

Sample gather_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "gather";
  const int s0 = p.sym(0), one = p.n(1), four = p.n(4);
  const int index = p.input("index", "i64", {s0}, {one});
  const int out = p.output("out", "f32", {s0}, {one});
  const int table = p.value("table", "f32", {four}, {one}, R"(["constant","table"])");
  p.symbol("s0", 0, "8", 0, "0");
  const int gather = p.kernel("gather_f32", {"r:f32", "r:i64", "w:f32", "int", "int"});
  p.body = {p.launch(gather, {table, index, out}, {s0, four})};
  s.entry.inputs = {manifest_tensor("i64", "index", {"\"s0\""}, {"1"})};
  s.entry.outputs = {manifest_tensor("f32", "out", {"\"s0\""}, {"1"})};
  s.entry.syms = {R"({"hi":8,"lo":0,"name":"s0"})"};
  return s;
}

BundleText host_bundle(const std::string& function) {
  Sample s;
  PlanText& p = s.plan;
  const int four = p.n(4), one = p.n(1);
  const int out = p.output("out", "f32", {four}, {one});
  const int kernel = p.kernel("host_f32", {"w:f32", "int"});
  p.body = {p.launch(kernel, {out}, {four})};
  p.kernels[0] = replaced(p.kernels[0], "\"name\"", "\"host\":\"" + function + "\",\"name\"");
  s.entry.outputs = {manifest_tensor("f32", "out", {"4"}, {"1"})};
  BundleText bundle = bundle_of({s});
  bundle.format = 3;
  bundle.user_kernels = {"{\"function\":\"" + function + "\",\"host\":true,\"op\":\"mine.op\"}"};
  return bundle;
}

BundleText bundle_of(const std::vector<Sample>& samples) {
  BundleText bundle;
  for (const Sample& sample : samples) {
    bundle.plan(sample.plan);
    bundle.entries.push_back(sample.entry);
    if (sample.entry.name == "count") bundle.states = {state_json("i64", "", "count", {})};
    if (sample.entry.name == "gather") {
      const float table[] = {10, 20, 30, 40};
      bundle.constants = {{"f32", "table", {4}, std::string(reinterpret_cast<const char*>(table), sizeof table)}};
    }
  }
  return bundle;
}

std::string add_bundle() { return bundle_of({add_sample()}).build(); }

Outcome outcome(ht_status* status) {
  Outcome result{ht_status_code(status), ht_status_message(status)};
  ht_status_free(status);
  return result;
}

Outcome load_outcome(const std::string& bytes, const ht_load_options* options) {
  ht_model* model = nullptr;
  const Outcome result = outcome(ht_model_load_memory(bytes.data(), bytes.size(), nullptr, nullptr, options, &model));
  if (result.code == HT_OK) ht_model_free(model);
  return result;
}

Model load(const std::string& bytes, const ht_load_options* options) {
  auto model = Model::load(bytes.data(), bytes.size(), options);
  REQUIRE_MESSAGE(model.ok(), std::string(model.status().message()));
  return *model;
}

Session session_of(const Model& model, int32_t num_threads) {
  ht_session_options options = ht_session_options_default();
  options.num_threads = num_threads;
  auto session = model.new_session(&options);
  REQUIRE_MESSAGE(session.ok(), std::string(session.status().message()));
  return std::move(*session);
}

}  // namespace hardtack::testing
