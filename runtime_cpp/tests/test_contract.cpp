// Every sentence that a caller who breaks the contract reads.
#include <doctest/doctest.h>

#include <array>

#include "support/samples.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

struct Caller {
  Model model;
  Session session;
  std::array<float, 16> x = {}, y = {}, z = {};
  int64_t x_shape[3] = {2, 3, 1}, y_shape[2] = {2, 3}, z_shape[2] = {2, 3};
  int64_t x_strides[2] = {3, 1}, z_strides[2] = {3, 1};
  ht_tensor inputs[3] = {}, output = {};

  explicit Caller(const std::string& bytes = add_bundle()) : model(load(bytes)), session(session_of(model)) {
    const ht_dtype f32 = DTypeOf<float>::get();
    inputs[0] = {x.data(), {1, 0}, 2, f32, x_shape, x_strides, 0};
    inputs[1] = {y.data(), {1, 0}, 2, f32, y_shape, nullptr, 0};
  }
  void give_output() { output = {z.data(), {1, 0}, 2, DTypeOf<float>::get(), z_shape, z_strides, 0}; }
  std::string run(size_t num_inputs = 2, size_t num_outputs = 1, ht_code expected = HT_CONTRACT) {
    const Outcome o = outcome(ht_session_run(session.get(), nullptr, inputs, num_inputs, &output, num_outputs));
    CHECK(o.code == expected);
    return o.message;
  }
};

}  // namespace

TEST_CASE("the number of inputs and outputs") {
  Caller c;
  CHECK(c.run(2, 1, HT_OK) == "");
  CHECK(c.run(1) == "entry \"forward\" has 2 inputs, 1 given");
  CHECK(c.run(3) == "entry \"forward\" has 2 inputs, 3 given");
  CHECK(c.run(2, 0) == "entry \"forward\" has 1 output, 0 given");
}

TEST_CASE("dtype, rank, device") {
  Caller c;
  c.inputs[0].dtype = {2, 64, 1};
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): dtype is f64, expected f32");
  c.inputs[0].dtype = {2, 32, 4};
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): dtype is DLPack code 2, 32 bits, 4 lanes, expected f32");
  c.inputs[0].dtype = {2, 32, 1};
  c.inputs[0].ndim = 3;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): rank is 3, expected 2");
  c.inputs[0].ndim = -1;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): rank is -1, expected 2");
  c.inputs[0].ndim = 2;
  c.inputs[0].device.device_type = 2;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): device type is 2, expected 1");
}

TEST_CASE("sizes") {
  Caller c;
  c.x_shape[1] = 4;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): dimension 1 is 4, expected 3");
  c.x_shape[1] = 3;
  c.x_shape[0] = 1001;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): dimension 0 is 1001, expected 0 to 1000 (s0)");
  c.x_shape[0] = -1;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): dimension 0 is -1, expected 0 or more");
  c.x_shape[0] = 2;
  c.y_shape[0] = 1;
  CHECK(c.run() == "input \"y\" (1 of entry \"forward\"): dimension 0 is 1, expected 2 (s0)");
  c.inputs[0].shape = nullptr;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): shape is null");
}

TEST_CASE("a symbol without an upper bound has a lower one") {
  Caller c(bundle_of({sum_rows_sample()}).build());
  c.x_shape[1] = 0;
  CHECK(c.run(1) == "input \"x\" (0 of entry \"rows\"): dimension 1 is 0, expected at least 1 (s1)");
}

TEST_CASE("strides") {
  Caller c;
  c.x_strides[1] = 2;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): stride 1 is 2, expected 1");
  c.x_strides[1] = 1;
  c.x_strides[0] = 4;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): stride 0 is 4, expected 3");
  c.x_shape[0] = c.y_shape[0] = 1;
  CHECK(c.run(2, 1, HT_OK) == "");
  c.x_shape[0] = c.y_shape[0] = 0;
  c.x_strides[1] = 99;
  CHECK(c.run(2, 1, HT_OK) == "");
}

TEST_CASE("null strides of a tensor that is not contiguous by contract") {
  Sample s = add_sample();
  s.plan.values[1] =
      replaced(s.plan.values[1], "\"strides\":[1,2]", "\"strides\":[" + std::to_string(s.plan.n(4)) + ",2]");
  s.entry.inputs[1] = manifest_tensor("f32", "y", {"\"s0\"", "3"}, {"4", "1"});
  Caller c(bundle_of({s}).build());
  CHECK(c.run() == "input \"y\" (1 of entry \"forward\"): stride 0 is 3, expected 4");
}

TEST_CASE("pointers") {
  Caller c;
  c.inputs[0].data = nullptr;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): data is null");
  c.inputs[0].data = reinterpret_cast<void*>(uintptr_t{0x1000});
  c.inputs[0].byte_offset = 2;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): data is at address 0x1002, expected a multiple of 4");
  c.inputs[0].byte_offset = UINT64_MAX;
  CHECK(c.run() == "input \"x\" (0 of entry \"forward\"): byte_offset 18446744073709551615 leaves the address space");
  c.x_shape[0] = c.y_shape[0] = 0;
  c.inputs[0].data = nullptr;
  CHECK(c.run(2, 1, HT_OK) == "");
}

TEST_CASE("the caller's outputs meet the same contract and are apart") {
  Caller c;
  c.give_output();
  CHECK(c.run(2, 1, HT_OK) == "");
  c.z_shape[0] = 3;
  CHECK(c.run() == "output \"z\" (0 of entry \"forward\"): dimension 0 is 3, expected 2 (s0)");
  c.z_shape[0] = 2;
  c.output.data = c.x.data() + 5;
  CHECK(c.run() == "output \"z\" (0 of entry \"forward\") shares memory with input \"x\"");
  c.output.data = c.x.data() + 6;
  CHECK(c.run(2, 1, HT_OK) == "");
}

TEST_CASE("what a run returned may be given again, whatever happened to the session's buffer since") {
  Caller c;
  CHECK(c.run(2, 1, HT_OK) == "");
  const void* first = c.output.data;
  CHECK(c.run(2, 1, HT_OK) == "");
  CHECK(c.output.data == first);
  std::vector<float> large(600);
  c.inputs[0].data = c.inputs[1].data = large.data();
  c.x_shape[0] = c.y_shape[0] = 200;
  CHECK(c.run(2, 1, HT_OK) == "");
  CHECK(c.output.shape[0] == 200);
  REQUIRE(c.session.trim().ok());
  c.x_shape[0] = c.y_shape[0] = 1;
  CHECK(c.run(2, 1, HT_OK) == "");
  CHECK(c.output.shape[0] == 1);
  CHECK(c.session.memory().outputs_nbytes == 64);
}

TEST_CASE("an earlier result of the session cannot be an input of the next run") {
  Caller c;
  CHECK(c.run(2, 1, HT_OK) == "");
  c.inputs[1].data = c.output.data;
  c.output = {};
  CHECK(c.run() ==
        "output \"z\" (0 of entry \"forward\") shares memory with input \"y\": copy what an earlier run returned, or "
        "give outputs of your own");
}

TEST_CASE("guards are named with both sides") {
  Sample s = add_sample();
  PlanText& p = s.plan;
  p.guard("eq", p.op("mod", {p.sym(0), p.n(2)}), p.n(0), "s0 % 2 == 0");
  Caller c(bundle_of({s}).build());
  CHECK(c.run(2, 1, HT_OK) == "");
  c.x_shape[0] = c.y_shape[0] = 3;
  CHECK(c.run() == "entry \"forward\" requires s0 % 2 == 0; with s0 = 3 the left side is 1, expected equal to 0");
}

TEST_CASE("a size that is the value of an input") {
  Sample s;
  PlanText& p = s.plan;
  const int count = p.input("count", "i64", {}, {});
  const int out = p.output("out", "u8", {p.sym(0)}, {p.n(1)});
  p.symbol("n", 1, "9", 0, "null");
  p.body = {p.fill(out, 5)};
  static_cast<void>(count);
  s.entry.inputs = {manifest_tensor("i64", "count", {}, {})};
  s.entry.outputs = {manifest_tensor("u8", "out", {"\"n\""}, {"1"})};
  s.entry.syms = {R"({"hi":9,"lo":1,"name":"n"})"};
  const Model model = load(bundle_of({s}).build());
  Session session = session_of(model);
  int64_t n = 4;
  auto good = session.run({Tensor::of(&n, {})});
  REQUIRE_MESSAGE(good.ok(), std::string(good.status().message()));
  CHECK(good->at(0).shape() == std::vector<int64_t>{4});
  CHECK(good->at(0).data<uint8_t>()[3] == 5);
  n = 10;
  auto bad = session.run({Tensor::of(&n, {})});
  CHECK(std::string(bad.status().message()) ==
        "input \"count\" (0 of entry \"forward\"): value is 10, expected 1 to 9 (n)");
}

TEST_CASE("sizes for which the plan has no value, or breaks its own bounds, are refused") {
  Sample s = add_sample();
  s.plan.arena = s.plan.n(256);
  Caller c(bundle_of({s}).build());
  CHECK(c.run(2, 1, HT_OK) == "");
  std::vector<float> large(100 * 3);
  c.inputs[0].data = c.inputs[1].data = large.data();
  c.x_shape[0] = c.y_shape[0] = 100;
  CHECK(c.run(2, 1, HT_BAD_BUNDLE) ==
        "entry \"forward\" with s0 = 100: value \"t\": bytes 0 + 1200 lie outside the arena of 256");

  Sample divides = add_sample();
  divides.plan.op("div", {divides.plan.n(7), divides.plan.sym(0)});
  Caller d(bundle_of({divides}).build());
  d.x_shape[0] = d.y_shape[0] = 0;
  CHECK(d.run().find("with s0 = 0, expression ") != std::string::npos);
}

TEST_CASE("entries, states and options that do not exist") {
  const Model model = load(bundle_of({add_sample(), count_sample()}).build());
  Session session = session_of(model);
  CHECK(outcome(ht_session_run(session.get(), "backward", nullptr, 0, nullptr, 0)).message ==
        "no entry \"backward\"; the bundle has \"forward\", \"count\"");
  CHECK(outcome(ht_session_run(session.get(), nullptr, nullptr, 0, nullptr, 0)).message ==
        "no entry named; the bundle has \"forward\", \"count\"");
  CHECK(outcome(ht_session_run(session.get(), "forward", nullptr, 2, nullptr, 1)).message ==
        "entry \"forward\": inputs or outputs is a null pointer");
  int64_t value = 0;
  CHECK(std::string(session.read_state("total", &value, 8).message()) == "no state \"total\"");
  CHECK(std::string(session.write_state("count", &value, 4).message()) == "state \"count\" has 8 bytes, 4 given");
}
