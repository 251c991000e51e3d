// Every refusal of the plan verifier, each from one change to a good plan.
#include <doctest/doctest.h>

#include "plan_verify.h"
#include "support/samples.h"

using namespace hardtack::testing;
namespace rt = hardtack::rt;

namespace {

std::string verify(const Sample& sample, const BundleText& bundle) {
  PlanText text = sample.plan;
  const std::string json = text.json();
  const std::string manifest_text = bundle.manifest();
  rt::Manifest manifest;
  rt::Plan plan;
  rt::Status status = rt::parse_manifest(manifest_text, &manifest);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  status = rt::parse_plan(json, "plan", &plan);
  if (!status.ok()) return status.message();
  const std::string message = rt::verify_plan(manifest, manifest.entries.back(), "cpu:test", &plan).message();
  const std::string prefix = "plan of \"" + sample.entry.name + "\" for cpu:test: ";
  return message.compare(0, prefix.size(), prefix) == 0 ? message.substr(prefix.size()) : message;
}

std::string verify(const Sample& sample) { return verify(sample, bundle_of({sample})); }

// A sample without inputs: one i64 output and the arena values a and b, each of 8 bytes, at 0 and 64.
struct Two {
  Sample s;
  PlanText& p = s.plan;
  int n, a, b, add1, pass;
  Two() {
    n = p.output("n", "i64", {}, {});
    a = p.in_arena("a", "i64", {}, {}, p.n(0));
    b = p.in_arena("b", "i64", {}, {}, p.n(64));
    p.arena = p.n(128);
    add1 = p.kernel("increase_i64", {"rw:i64", "int"});
    pass = p.kernel("pass_i64", {"r:i64", "w:i64"});
    s.entry.outputs = {manifest_tensor("i64", "n", {}, {})};
  }
  std::string check() const { return verify(s); }
};

}  // namespace

TEST_CASE("the samples are sound") {
  CHECK(verify(add_sample()) == "");
  CHECK(verify(while_sample()) == "");
  CHECK(verify(branch_sample()) == "");
  CHECK(verify(count_sample()) == "");
  CHECK(verify(gather_sample()) == "");
  CHECK(verify(sum_rows_sample()) == "");
}

TEST_CASE("entry, target and symbols are those of the manifest") {
  Sample s = add_sample();
  const BundleText bundle = bundle_of({s});
  s.plan.target = "cpu:other";
  CHECK(verify(s, bundle) == "it is for entry \"forward\" and target cpu:other");
  s = add_sample();
  s.entry.syms = {R"({"hi":1000,"lo":1,"name":"s0"})"};
  CHECK(verify(s) == "its symbols differ from the manifest's");
  s = add_sample();
  s.entry.syms.clear();
  CHECK(verify(s) == "its symbols differ from the manifest's");
}

TEST_CASE("indices are in range") {
  Sample s = add_sample();
  s.plan.arena = 99;
  CHECK(verify(s).find("the arena: no expression 99, there are") == 0);
  s = add_sample();
  s.plan.outputs = {9};
  CHECK(verify(s) == "outputs: no value 9, there are 4");
  s = add_sample();
  s.plan.body[0] = replaced(s.plan.body[0], "[0,1,3]", "[0,1,4]");
  CHECK(verify(s) == "a launch: no value 4, there are 4");
  s = add_sample();
  s.plan.body[0] = replaced(s.plan.body[0], "\"kernel\":0", "\"kernel\":1");
  CHECK(verify(s) == "a launch: no kernel 1, there are 1");
  s = add_sample();
  s.plan.body[0] = replaced(s.plan.body[0], "\"origin\":0", "\"origin\":1");
  CHECK(verify(s) == "an instruction: no origin 1, there are 1");
  s = add_sample();
  s.plan.values[3] = replaced(s.plan.values[3], "[\"arena\",", "[\"arena\",9");
  CHECK(verify(s).find("t: no expression 9") == 0);
  s = add_sample();
  s.plan.values[2] = replaced(s.plan.values[2], "[\"output\",0]", "[\"output\",1]");
  CHECK(verify(s) == "z: no output 1, there are 1");
}

TEST_CASE("symbols are bound where a size can be read") {
  Sample s = add_sample();
  s.plan.syms[0] = replaced(s.plan.syms[0], "\"dim\":0", "\"dim\":2");
  CHECK(verify(s) == "symbol \"s0\": input \"x\" has no dimension 2");
  s = add_sample();
  s.plan.syms[0] = replaced(s.plan.syms[0], "\"dim\":0", "\"dim\":1");
  CHECK(verify(s) == "symbol \"s0\" does not stand alone as dimension 1 of input \"x\"");
  s = add_sample();
  s.plan.syms[0] = replaced(s.plan.syms[0], "\"dim\":0", "\"dim\":null");
  CHECK(verify(s) == "symbol \"s0\": input \"x\" is not a rank-0 i64");
  s = add_sample();
  s.plan.syms[0] = replaced(s.plan.syms[0], "\"input\":0", "\"input\":2");
  CHECK(verify(s) == "s0: no input 2, there are 2");
}

TEST_CASE("inputs and outputs agree with the manifest") {
  Sample s = add_sample();
  s.entry.inputs.pop_back();
  CHECK(verify(s) == "2 inputs, the manifest has 1");
  const std::string differ = "input 1 \"y\": name, dtype, shape or strides differ from the manifest's ";
  s = add_sample();
  s.entry.inputs[1] = manifest_tensor("f32", "yy", {"\"s0\"", "3"}, {"3", "1"});
  CHECK(verify(s) == differ + "\"yy\"");
  for (const std::string& changed :
       {manifest_tensor("f16", "y", {"\"s0\"", "3"}, {"3", "1"}), manifest_tensor("f32", "y", {"\"s0\""}, {"1"}),
        manifest_tensor("f32", "y", {"\"s0\"", "4"}, {"3", "1"}),
        manifest_tensor("f32", "y", {"\"s1\"", "3"}, {"3", "1"}), manifest_tensor("f32", "y", {"7", "3"}, {"3", "1"}),
        manifest_tensor("f32", "y", {"\"s0\"", "3"}, {"4", "1"})}) {
    s.entry.inputs[1] = changed;
    CHECK(verify(s) == differ + "\"y\"");
  }
  s = add_sample();
  s.plan.inputs = {1, 0};
  CHECK(verify(s) == "input 0: value \"y\" is not stored there");
  s = add_sample();
  s.plan.value("view", "f32", {}, {}, R"(["input",0])");
  CHECK(verify(s) == "3 values are stored in 2 inputs");
}

TEST_CASE("constants and states agree with the manifest") {
  Sample s = gather_sample();
  s.plan.values[2] = replaced(s.plan.values[2], "[\"constant\",\"table\"]", "[\"constant\",\"chair\"]");
  CHECK(verify(s) == "value \"table\": the manifest has no constant \"chair\"");
  s = gather_sample();
  s.plan.values[2] = replaced(s.plan.values[2], "\"f32\"", "\"i32\"");
  CHECK(verify(s) == "value \"table\": dtype or size differ from \"table\" in the manifest");
  s = gather_sample();
  s.plan.values[2] = replaced(s.plan.values[2], "\"strides\":[1]", "\"strides\":[" + std::to_string(s.plan.n(2)) + "]");
  CHECK(verify(s) == "value \"table\": dtype or size differ from \"table\" in the manifest");
  s = count_sample();
  s.plan.values[1] = replaced(s.plan.values[1], "\"count\"]", "\"other\"]");
  CHECK(verify(s) == "value \"count\": the manifest has no state \"other\"");
  s = count_sample();
  BundleText bundle = bundle_of({s});
  bundle.states = {state_json("i64", "", "count", {1})};
  CHECK(verify(s, bundle) == "value \"count\": dtype or size differ from \"count\" in the manifest");
}

TEST_CASE("names are unique") {
  Two t;
  t.p.in_arena("a", "i64", {}, {}, t.p.n(0));
  CHECK(t.check() == "value \"a\" twice");
  Two k;
  k.p.kernel("increase_i64", {"rw:i64", "int"});
  CHECK(k.check() == "kernel increase_i64 twice");
}

TEST_CASE("arguments match the kernel's params") {
  Two t;
  t.p.body = {t.p.launch(t.add1, {}, {t.p.n(1)})};
  CHECK(t.check() == "kernel increase_i64: launched with 0 buffers and 1 ints, its params are 1 and 1");
  t.p.body = {t.p.launch(t.add1, {t.n}, {})};
  CHECK(t.check() == "kernel increase_i64: launched with 1 buffers and 0 ints, its params are 1 and 1");
  t.p.in_arena("c", "f32", {}, {}, t.p.n(0));
  t.p.body = {t.p.launch(t.pass, {3, t.n}, {})};
  CHECK(t.check() == "kernel pass_i64: argument 0 \"c\" is f32, expected i64");
}

TEST_CASE("values are written before they are read, on every path") {
  Two t;
  CHECK(t.check() == "output \"n\" is not written on every path");
  t.p.body = {t.p.copy(t.a, t.n)};
  CHECK(t.check() == "value \"a\" is read before it is written");
  t.p.body = {t.p.launch(t.add1, {t.a}, {t.p.n(1)})};
  CHECK(t.check() == "value \"a\" is read before it is written");
  t.p.body = {t.p.fill(t.a, 1), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "");
}

TEST_CASE("after an if only what both branches wrote is there") {
  Two t;
  const int flag = t.p.input("flag", "bool", {}, {});
  t.s.entry.inputs = {manifest_tensor("bool", "flag", {}, {})};
  t.p.body = {t.p.branch(flag, {t.p.fill(t.a, 1)}, {}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "value \"a\" is read before it is written");
  t.p.body = {t.p.branch(flag, {t.p.fill(t.a, 1)}, {t.p.fill(t.b, 1)}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "value \"a\" is read before it is written");
  t.p.body = {t.p.branch(flag, {t.p.fill(t.a, 1)}, {t.p.fill(t.a, 2)}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "");
  t.p.body = {t.p.branch(flag, {t.p.fill(t.a, 1)}, {t.p.copy(t.a, t.n)})};
  CHECK(t.check() == "value \"a\" is read before it is written");
}

TEST_CASE("a while body may run zero times, its condition part runs once") {
  Two t;
  const int flag = t.p.in_arena("flag", "bool", {}, {}, t.p.n(64));
  t.p.body = {t.p.loop({t.p.fill(flag, 0)}, flag, {t.p.fill(t.a, 1)}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "value \"a\" is read before it is written");
  t.p.body = {t.p.loop({t.p.fill(flag, 0), t.p.fill(t.a, 1)}, flag, {}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "");
  t.p.body = {t.p.loop({}, flag, {t.p.fill(flag, 0)}), t.p.fill(t.n, 0)};
  CHECK(t.check() == "value \"flag\" is read before it is written");
  // Written at the end of the body and read at its start: not there in the first pass.
  t.p.body = {t.p.loop({t.p.fill(flag, 0)}, flag, {t.p.copy(t.a, t.n), t.p.fill(t.a, 1)}), t.p.fill(t.n, 0)};
  CHECK(t.check() == "value \"a\" is read before it is written");
}

TEST_CASE("inputs and constants are not written") {
  Sample s = branch_sample();
  s.plan.body.push_back(s.plan.fill(0, 1));
  CHECK(verify(s) == "value \"flag\" is written, but it is an input");
  s = gather_sample();
  s.plan.body.push_back(s.plan.fill(2, 1));
  CHECK(verify(s) == "value \"table\" is written, but it is a constant");
}

TEST_CASE("the arguments of a launch are apart where one is written") {
  Two t;
  t.p.body = {t.p.fill(t.a, 1), t.p.launch(t.pass, {t.a, t.a}, {}), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "kernel pass_i64: argument 1 \"a\" shares memory with another, and one is written");
  Sample s = count_sample();
  s.plan.value("count again", "i64", {}, {}, R"(["state","count"])");
  const int pass = s.plan.kernel("pass_i64", {"r:i64", "w:i64"});
  s.plan.body.push_back(s.plan.launch(pass, {1, 2}, {}));
  CHECK(verify(s) == "kernel pass_i64: argument 1 \"count again\" shares memory with another, and one is written");
  s = count_sample();
  s.plan.value("count again", "i64", {}, {}, R"(["state","count"])");
  s.plan.body.push_back(s.plan.copy(1, 2));
  CHECK(verify(s) == "copy from \"count\" to \"count again\": the same storage");
}

TEST_CASE("values that are alive together do not overlap") {
  Two t;
  const int c = t.p.in_arena("c", "i64", {}, {}, t.p.n(0));  // where a lies
  t.p.body = {t.p.fill(t.a, 1), t.p.fill(c, 2), t.p.copy(t.a, t.n)};
  CHECK(t.check() == "values \"c\" (arena bytes 0 + 8) and \"a\" (0 + 8) are alive together and overlap");
  t.p.body = {t.p.fill(t.a, 1), t.p.copy(t.a, t.n), t.p.fill(c, 2), t.p.copy(c, t.n)};
  CHECK(t.check() == "");
  // The last read and the first write in one launch: both are alive.
  t.p.body = {t.p.fill(t.a, 1), t.p.launch(t.pass, {t.a, c}, {}), t.p.copy(c, t.n)};
  CHECK(t.check() == "values \"c\" (arena bytes 0 + 8) and \"a\" (0 + 8) are alive together and overlap");
  // A larger value below reaches into a.
  Two u;
  const int wide = u.p.in_arena("wide", "i64", {u.p.n(9)}, {u.p.n(1)}, u.p.n(0));
  u.p.body = {u.p.fill(u.b, 1), u.p.fill(wide, 2), u.p.copy(u.b, u.n)};
  CHECK(u.check() == "values \"wide\" (arena bytes 0 + 72) and \"b\" (64 + 8) are alive together and overlap");
}

TEST_CASE("what a loop needs from outside stays alive through all of it") {
  Two t;
  const int flag = t.p.in_arena("flag", "bool", {}, {}, t.p.n(64));
  const int c = t.p.in_arena("c", "i64", {}, {}, t.p.n(0));
  // a is read early in the body, c is written later in it: in the next pass a is needed again.
  t.p.body = {t.p.fill(t.a, 1), t.p.loop({t.p.fill(flag, 0)}, flag, {t.p.copy(t.a, t.n), t.p.fill(c, 2)}),
              t.p.fill(t.n, 0)};
  CHECK(t.check() == "values \"c\" (arena bytes 0 + 8) and \"a\" (0 + 8) are alive together and overlap");
  t.p.body = {t.p.fill(t.a, 1), t.p.copy(t.a, t.n), t.p.loop({t.p.fill(flag, 0)}, flag, {t.p.fill(c, 2)})};
  CHECK(t.check() == "");
}

TEST_CASE("places lie in the arena, at multiples of 64") {
  Two t;
  t.p.body = {t.p.fill(t.n, 0)};
  t.p.arena = t.p.n(71);
  CHECK(t.check() == "value \"b\": bytes 64 + 8 lie outside the arena of 71");
  t.p.arena = t.p.n(-1);
  CHECK(t.check() == "the arena has -1 bytes, expected 0 to 2^48");
  t.p.arena = t.p.n(int64_t{1} << 48);
  CHECK(t.check() == "the arena has 281474976710656 bytes, expected 0 to 2^48");
  Two u;
  u.p.in_arena("odd", "u8", {}, {}, u.p.n(32));
  CHECK(u.check().find("output \"n\"") == 0);
  u.p.body = {u.p.fill(u.n, 0)};
  CHECK(u.check() == "value \"odd\": arena offset 32 is not a multiple of 64");
}

TEST_CASE("sizes, strides and workspaces are neither negative nor 2^48") {
  const auto with_shape = [](int64_t size, int64_t stride) {
    Two t;
    t.p.in_arena("v", "f32", {t.p.n(size)}, {t.p.n(stride)}, t.p.n(0));
    t.p.body = {t.p.fill(t.n, 0)};
    return t.check();
  };
  CHECK(with_shape(-1, 1) == "value \"v\": a negative size or stride");
  CHECK(with_shape(2, -1) == "value \"v\": a negative size or stride");
  CHECK(with_shape(int64_t{1} << 46, 1) == "value \"v\": a size or stride is negative, or it is not below 2^48 bytes");
  CHECK(with_shape(INT64_MAX, INT64_MAX) == "value \"v\": a size or stride is negative, or it is not below 2^48 bytes");
  CHECK(with_shape(0, INT64_MAX) == "");
  Two t;
  t.p.body = {t.p.fill(t.n, 0), t.p.launch(t.add1, {t.n}, {t.p.n(1)}, -64)};
  CHECK(t.check() == "kernel increase_i64: a workspace of -64 bytes");
}

TEST_CASE("outputs are row-major, and what the plan writes reaches over as many bytes as its elements have") {
  const auto output = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    Two t;
    std::vector<int> sizes, steps;
    std::vector<std::string> declared;
    for (const int64_t n : shape) sizes.push_back(t.p.n(n)), declared.push_back(std::to_string(n));
    // a sum of two numbers: of such the manifest says only a text
    for (const int64_t n : strides) steps.push_back(t.p.op("add", {t.p.n(n), t.p.n(0)}));
    const int y = t.p.output("y", "f32", sizes, steps);
    t.s.entry.outputs.push_back(
        manifest_tensor("f32", "y", declared, std::vector<std::string>(strides.size(), "\"step\"")));
    t.p.body = {t.p.fill(t.n, 1), t.p.fill(y, 1)};
    return t.check();
  };
  const std::string rule = ": outputs are dense and row-major";
  CHECK(output({3, 4}, {4, 1}) == "");
  CHECK(output({3, 0}, {0, 1}) == "");
  CHECK(output({4}, {0}) == "output \"y\" has the stride 0 in dimension 0, expected 1" + rule);
  CHECK(output({4}, {2}) == "output \"y\" has the stride 2 in dimension 0, expected 1" + rule);
  CHECK(output({3, 4}, {1, 3}) == "output \"y\" has the stride 3 in dimension 1, expected 1" + rule);
  CHECK(output({1, 4}, {7, 1}) == "output \"y\" has the stride 7 in dimension 0, expected 4" + rule);
  const auto in_arena = [](int64_t rows, int64_t stride) {
    Two t;
    t.p.in_arena("v", "f32", {t.p.n(rows), t.p.n(2)}, {t.p.n(stride), t.p.n(1)}, t.p.n(0));
    t.p.body = {t.p.fill(t.n, 1)};
    return t.check();
  };
  CHECK(in_arena(2, 2) == "");
  CHECK(in_arena(0, 9) == "");
  CHECK(in_arena(2, 3) == "value \"v\": its strides reach over 20 bytes, its elements have 16");
  CHECK(in_arena(3, 0) == "value \"v\": its strides reach over 8 bytes, its elements have 24");
  CHECK(in_arena(2, 0) == "value \"v\": its strides reach over 8 bytes, its elements have 16");
}

TEST_CASE("copies keep dtype, shape and strides; conditions are one bool") {
  Two t;
  const int vector = t.p.in_arena("v", "i64", {t.p.n(1)}, {t.p.n(1)}, t.p.n(0));
  t.p.body = {t.p.fill(vector, 1), t.p.copy(vector, t.n)};
  CHECK(t.check() == "copy from \"v\" to \"n\": dtype, shape or strides differ");
  t.p.body = {t.p.fill(t.n, 1), t.p.branch(t.n, {}, {})};
  CHECK(t.check() == "condition \"n\" is not a bool of one element");
  const int flags = t.p.in_arena("flags", "bool", {t.p.n(2)}, {t.p.n(1)}, t.p.n(64));
  t.p.body = {t.p.fill(t.n, 1), t.p.fill(flags, 1), t.p.branch(flags, {}, {})};
  CHECK(t.check() == "condition \"flags\" is not a bool of one element");
}

TEST_CASE("the text is exactly the format") {
  Sample s = add_sample();
  const std::string good = s.plan.json();
  const auto error_of = [](const std::string& json) {
    rt::Plan plan;
    return std::string(rt::parse_plan(json, "p", &plan).message());
  };
  CHECK(error_of(good) == "");
  CHECK(error_of(replaced(good, "\"format\":2", "\"format\":1"))
            .find("the plan's format is 1, this runtime reads 2: export the model again") != std::string::npos);
  CHECK(error_of(replaced(good, "\"format\":2", "\"format\":3"))
            .find("the plan's format is 3, this runtime reads 2: update it") != std::string::npos);
  CHECK(error_of(replaced(good, "\"guards\":[],", "")).find("expected key \"guards\"") != std::string::npos);
  CHECK(error_of(replaced(good, "\"guards\":[],", "\"guards\":[],\"more\":1,")).find("expected key \"inputs\"") !=
        std::string::npos);
  CHECK(error_of(replaced(good, "\"op\":\"launch\"", "\"op\":\"jump\"")).find("unknown instruction \"jump\"") !=
        std::string::npos);
  CHECK(error_of(replaced(good, "\"buffers\"", "\"a\"")).find("no instruction starts with the key \"a\"") !=
        std::string::npos);
  CHECK(error_of(replaced(good, "[\"mul\",", "[\"pow\",")).find("unknown expression \"pow\"") != std::string::npos);
  CHECK(error_of(replaced(good, "\"write\"", "\"scribble\"")).find("unknown access \"scribble\"") != std::string::npos);
  CHECK(error_of(replaced(good, "\"f32\"", "\"f33\"")).find("unknown dtype \"f33\"") != std::string::npos);
  CHECK(error_of(replaced(good, "[\"arena\"", "[\"heap\"")).find("unknown storage \"heap\"") != std::string::npos);
  CHECK(error_of(replaced(good, "[\"arena\",", "[\"arena\",-")).find("a number is out of range") != std::string::npos);
  CHECK(error_of(replaced(good, "\"body\":[", "\"body\":[1,")).find("expected an object") != std::string::npos);
  for (size_t length = 0; length < good.size(); length += 3) CHECK(error_of(good.substr(0, length)) != "");
}
