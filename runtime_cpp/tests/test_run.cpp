// Whole runs: bundle bytes in, numbers out.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "support/samples.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

std::vector<Tensor> run(Session* session, const std::vector<Tensor>& inputs, const char* entry = nullptr) {
  auto outputs = session->run(inputs, entry);
  REQUIRE_MESSAGE(outputs.ok(), std::string(outputs.status().message()));
  return *outputs;
}

}  // namespace

TEST_CASE("a bundle adds, for every size from 0 on") {
  const Model model = load(add_bundle());
  Session session = session_of(model);
  for (const int64_t rows : {2, 0, 1, 1000, 2}) {
    std::vector<float> x(static_cast<size_t>(rows) * 3), y(x.size());
    std::iota(x.begin(), x.end(), 1.0f);
    std::iota(y.begin(), y.end(), 100.0f);
    const auto out = run(&session, {Tensor::of(x.data(), {rows, 3}), Tensor::of(y.data(), {rows, 3})});
    REQUIRE(out.size() == 1);
    CHECK(out[0].shape() == std::vector<int64_t>{rows, 3});
    CHECK(out[0].strides() == std::vector<int64_t>{3, 1});
    for (size_t i = 0; i < x.size(); ++i) CHECK(out[0].data<float>()[i] == 2 * x[i] + y[i]);
  }
  CHECK(session.memory().num_cached_shapes == 4);
}

TEST_CASE("a session runs on when every Model is gone") {
  Session session;
  {
    const Model model = load(add_bundle());
    session = session_of(model);
  }
  const float x[] = {1, 2, 3}, y[] = {4, 5, 6};
  const auto out = run(&session, {Tensor::of(x, {1, 3}), Tensor::of(y, {1, 3})});
  REQUIRE(out.size() == 1);
  CHECK(out[0].data<float>()[2] == 12);
}

TEST_CASE("the caller's output buffer is filled in place") {
  const Model model = load(add_bundle());
  Session session = session_of(model);
  const float x[] = {1, 2, 3}, y[] = {4, 5, 6};
  float z[] = {0, 0, 0};
  const Tensor tx = Tensor::of(x, {1, 3}), ty = Tensor::of(y, {1, 3}), tz = Tensor::of(z, {1, 3});
  const ht_tensor inputs[] = {tx.c_tensor(), ty.c_tensor()};
  ht_tensor output = tz.c_tensor();
  REQUIRE(session.run("forward", inputs, 2, &output, 1).ok());
  CHECK(output.data == z);
  CHECK(z[0] == 6);
  CHECK(z[2] == 12);
}

TEST_CASE("inputs may start at a byte_offset, have any stride in dimensions of size 1, and be at an odd element") {
  const Model model = load(add_bundle());
  Session session = session_of(model);
  const float storage[] = {0, 1, 2, 3, 4};
  int64_t shape[] = {1, 3}, strides[] = {77, 1};
  ht_tensor x = Tensor::of(storage, {1, 3}).c_tensor();
  x.shape = shape;
  x.strides = strides;
  x.byte_offset = 4;
  ht_tensor inputs[] = {x, x};
  ht_tensor output = {};
  REQUIRE(session.run(nullptr, inputs, 2, &output, 1).ok());
  CHECK(static_cast<float*>(output.data)[0] == 3);
  CHECK(static_cast<float*>(output.data)[2] == 9);
}

TEST_CASE("states are kept between runs, can be read, written and reset") {
  const Model model = load(bundle_of({count_sample()}).build());
  Session session = session_of(model), other = session_of(model);
  for (int64_t i = 1; i <= 3; ++i) CHECK(*run(&session, {})[0].data<int64_t>() == i);
  CHECK(*run(&other, {})[0].data<int64_t>() == 1);
  int64_t value = 0;
  REQUIRE(session.read_state("count", &value, sizeof value).ok());
  CHECK(value == 3);
  value = 40;
  REQUIRE(session.write_state("count", &value, sizeof value).ok());
  CHECK(*run(&session, {})[0].data<int64_t>() == 41);
  REQUIRE(session.trim().ok());
  CHECK(*run(&session, {})[0].data<int64_t>() == 42);
  REQUIRE(session.reset().ok());
  CHECK(*run(&session, {})[0].data<int64_t>() == 1);
}

TEST_CASE("a state starts from its constant") {
  Sample count = count_sample();
  BundleText bundle = bundle_of({count});
  const int64_t start = 1000;
  bundle.constants = {{"i64", "start", {}, std::string(reinterpret_cast<const char*>(&start), 8)}};
  bundle.states = {state_json("i64", "start", "count", {})};
  const Model model = load(bundle.build());
  Session session = session_of(model);
  CHECK(*run(&session, {})[0].data<int64_t>() == 1001);
  REQUIRE(session.reset().ok());
  CHECK(*run(&session, {})[0].data<int64_t>() == 1001);
}

namespace {

// count += 1 and then a kernel that returns the input, or the other way round.
Sample failing_sample(bool state_first) {
  Sample s = count_sample();
  PlanText& p = s.plan;
  p.input("code", "i64", {}, {});
  p.symbol("s0", 0, "9", 0, "null");
  s.entry.inputs = {manifest_tensor("i64", "code", {}, {})};
  s.entry.syms = {R"({"hi":9,"lo":0,"name":"s0"})"};
  const std::string fail = p.launch(p.kernel("give_back", {"int"}), {}, {p.sym(0)});
  p.body.insert(p.body.begin() + (state_first ? 1 : 0), fail);
  return s;
}

}  // namespace

TEST_CASE("a run that fails after it began to write a state leaves a session that says so until the state is whole") {
  const Model model = load(bundle_of({failing_sample(true), gather_sample()}).build());
  Session session = session_of(model);
  const int64_t good = 0, bad = HT_KERNEL_ASSERT;
  const auto count = [&](int64_t code) -> std::string {
    auto out = session.run({Tensor::of(&code, {})}, "count");
    if (out.ok()) return std::to_string(*(*out)[0].data<int64_t>());
    CHECK(out.status().code() == (code == bad ? HT_KERNEL : HT_STATES));
    return out.status().message();
  };
  const std::string torn =
      "state \"count\" is half written: a run of entry \"count\" failed; reset the session, or write every state that "
      "is";
  CHECK(count(good) == "1");
  CHECK(count(bad).find("an assertion of the model failed") != std::string::npos);
  CHECK(count(good) == "entry \"count\": " + torn);
  int64_t value = 0;
  const Status read = session.read_state("count", &value, sizeof value);
  CHECK(read.code() == HT_STATES);
  CHECK(std::string(read.message()) == torn);
  const int64_t index[] = {3};
  CHECK(*run(&session, {Tensor::of(index, {1})}, "gather")[0].data<float>() == 40);  // it uses no state
  REQUIRE(session.reset().ok());
  CHECK(count(good) == "1");
  count(bad);
  value = 40;
  REQUIRE(session.write_state("count", &value, sizeof value).ok());
  CHECK(count(good) == "41");
  REQUIRE(session.read_state("count", &value, sizeof value).ok());
  CHECK(value == 41);
}

TEST_CASE("a run that fails before it writes a state leaves it as it was") {
  const Model model = load(bundle_of({failing_sample(false)}).build());
  Session session = session_of(model);
  const int64_t good = 0, bad = HT_KERNEL_ASSERT;
  CHECK(*run(&session, {Tensor::of(&good, {})})[0].data<int64_t>() == 1);
  CHECK(session.run({Tensor::of(&bad, {})}).status().code() == HT_KERNEL);
  CHECK(*run(&session, {Tensor::of(&good, {})})[0].data<int64_t>() == 2);
}

TEST_CASE("an observer that stops a run between two writes of a state leaves it torn, too") {
  const Model model = load(bundle_of({failing_sample(true)}).build());
  Session session = session_of(model);
  const int64_t good = 0;
  REQUIRE(session.set_observer([](void*, const ht_step* step) { return step->index == 0 ? 1 : 0; }, nullptr).ok());
  CHECK(session.run({Tensor::of(&good, {})}).status().code() == HT_CANCELLED);
  REQUIRE(session.set_observer(nullptr, nullptr).ok());
  CHECK(session.run({Tensor::of(&good, {})}).status().code() == HT_STATES);
}

TEST_CASE("while runs until its condition fails, if takes one branch") {
  const Model model = load(bundle_of({while_sample(), branch_sample()}).build());
  Session session = session_of(model);
  CHECK(*run(&session, {}, "loop")[0].data<int64_t>() == 12);
  for (const bool flag : {true, false, true}) {
    const auto out = run(&session, {Tensor::of(&flag, {})}, "branch");
    for (int i = 0; i < 4; ++i) CHECK(out[0].data<int32_t>()[i] == (flag ? 7 : 9));
  }
}

TEST_CASE("another thread ends a run whose loop has no end in sight, and the session goes on") {
  const Model model = load(bundle_of({while_sample("ages", int64_t{1} << 62, 1), while_sample()}).build());
  Session session = session_of(model);
  session.interrupt();  // nothing runs: later runs are not asked
  CHECK(*run(&session, {}, "loop")[0].data<int64_t>() == 12);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      session.interrupt();
    }
  });
  auto stopped = session.run({}, "ages");
  over = true;
  other.join();
  CHECK(stopped.status().code() == HT_CANCELLED);
  CHECK(std::string(stopped.status().message()).find("entry \"ages\": the run was interrupted before instruction") ==
        0);
  CHECK(*run(&session, {}, "loop")[0].data<int64_t>() == 12);
}

TEST_CASE("two entries share one session and the constants") {
  const Model model = load(bundle_of({add_sample(), gather_sample()}).build());
  Session session = session_of(model);
  const int64_t index[] = {3, 0, 2};
  const auto out = run(&session, {Tensor::of(index, {3})}, "gather");
  CHECK(out[0].data<float>()[0] == 40);
  CHECK(out[0].data<float>()[2] == 30);
}

TEST_CASE("a kernel that refuses its data gives HT_KERNEL with the user's line") {
  const Model model = load(bundle_of({gather_sample()}).build());
  Session session = session_of(model);
  const int64_t index[] = {4};
  auto out = session.run({Tensor::of(index, {1})});
  REQUIRE(!out.ok());
  CHECK(out.status().code() == HT_KERNEL);
  CHECK(std::string(out.status().message()) ==
        "entry \"gather\", instruction 0 (model.py:31, aten.add): an index is out of range [kernel gather_f32]");
  const std::pair<const char*, const char*> places[] = {{R"(["",0,"","",""])", ""},
                                                        {R"(["",0,"aten.take","",""])", " (aten.take)"},
                                                        {R"(["m.py",7,"","",""])", " (m.py:7)"}};
  for (const auto& [origin, place] : places) {
    Sample other = gather_sample();
    other.plan.origins = {origin};
    const Model placed = load(bundle_of({other}).build());
    auto refused = session_of(placed).run({Tensor::of(index, {1})});
    REQUIRE(!refused.ok());
    CHECK(std::string(refused.status().message()) ==
          "entry \"gather\", instruction 0" + std::string(place) + ": an index is out of range [kernel gather_f32]");
  }
  const int64_t good[] = {1};
  CHECK(run(&session, {Tensor::of(good, {1})})[0].data<float>()[0] == 20);
}

TEST_CASE("what a kernel returns is told apart") {
  for (const auto& [code, text] :
       {std::pair<int, const char*>{2, "an assertion of the model failed [kernel give_back]"},
        {7, "kernel give_back is broken, it returned 7"}}) {
    Sample s;
    s.plan.body = {s.plan.launch(s.plan.kernel("give_back", {"int"}), {}, {s.plan.n(code)})};
    const Model model = load(bundle_of({s}).build());
    Session session = session_of(model);
    auto out = session.run({});
    REQUIRE(!out.ok());
    CHECK(out.status().code() == HT_KERNEL);
    CHECK(std::string(out.status().message()) ==
          "entry \"forward\", instruction 0 (model.py:31, aten.add): " + std::string(text));
  }
}

TEST_CASE("an output whose strides depend on sizes is proved row-major when a shape is bound") {
  Sample s = sum_rows_sample();
  const int rows = s.plan.sym(1);
  s.plan.values[1] = replaced(s.plan.values[1], "\"strides\":[2]", "\"strides\":[" + std::to_string(rows) + "]");
  s.entry.outputs = {manifest_tensor("f32", "out", {"\"s0\""}, {"\"s1\""})};
  const Model model = load(bundle_of({s}).build());
  Session session = session_of(model);
  const float x[] = {1, 2, 3, 4};
  CHECK(session.run({Tensor::of(x, {4, 1})}).ok());
  auto out = session.run({Tensor::of(x, {2, 2})});
  REQUIRE(!out.ok());
  CHECK(out.status().code() == HT_BAD_BUNDLE);
  CHECK(std::string(out.status().message()) ==
        "entry \"rows\" with s0 = 2, s1 = 2: output \"out\" has the stride 2 in dimension 0, expected 1: outputs are "
        "dense and row-major");
}

TEST_CASE("bind tells the outputs' sizes and runs nothing") {
  const Model model = load(add_bundle());
  Session session = session_of(model);
  const float x[6] = {};
  const ht_tensor inputs[] = {Tensor::of(x, {2, 3}).c_tensor(), Tensor::of(x, {2, 3}).c_tensor()};
  int64_t shape[] = {2, 3};
  ht_tensor in[] = {inputs[0], inputs[1]};
  in[0].shape = in[1].shape = shape;
  ht_tensor output = {};
  REQUIRE(session.bind(nullptr, in, 2, &output, 1).ok());
  CHECK(output.data == nullptr);
  CHECK(output.ndim == 2);
  CHECK(output.shape[0] == 2);
  CHECK(output.shape[1] == 3);
}

namespace {

struct Seen {
  std::vector<std::string> ops, names;
  std::vector<float> first;
  int stop_after = -1;
};

int32_t observe(void* user, const ht_step* step) {
  Seen* seen = static_cast<Seen*>(user);
  seen->ops.push_back(step->op);
  CHECK(std::string(step->file) == "model.py");
  CHECK(step->line == 31);
  CHECK(step->duration_ns >= 0);
  for (size_t i = 0; i < step->num_values; ++i) {
    seen->names.push_back(step->names[i]);
    if (step->tensors[i].dtype.code == 2) seen->first.push_back(*static_cast<float*>(step->tensors[i].data));
  }
  return static_cast<int>(step->index) == seen->stop_after ? 1 : 0;
}

}  // namespace

TEST_CASE("the observer sees each instruction and what it wrote") {
  const Model model = load(bundle_of({add_sample(), while_sample()}).build());
  Session session = session_of(model);
  Seen seen;
  REQUIRE(session.set_observer(observe, &seen).ok());
  const float x[] = {1, 2, 3}, y[] = {4, 5, 6};
  run(&session, {Tensor::of(x, {1, 3}), Tensor::of(y, {1, 3})}, "forward");
  CHECK(seen.ops == std::vector<std::string>{"launch", "launch"});
  CHECK(seen.names == std::vector<std::string>{"t", "z"});
  CHECK(seen.first == std::vector<float>{5, 6});
  seen = Seen();
  run(&session, {}, "loop");
  CHECK(seen.ops == std::vector<std::string>{"fill", "launch", "while", "launch", "launch", "while", "launch", "launch",
                                             "while", "launch", "launch", "while", "launch", "launch", "while",
                                             "copy"});
  seen = Seen();
  seen.stop_after = 0;
  auto stopped = session.run({Tensor::of(x, {1, 3}), Tensor::of(y, {1, 3})}, "forward");
  CHECK(stopped.status().code() == HT_CANCELLED);
  CHECK(seen.ops.size() == 1);
}
