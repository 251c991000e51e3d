// Every call of the CUDA driver fails once: the caller is told in words, states are as they were or known to be lost,
// everything works again afterwards, and nothing is left behind.
#include <doctest/doctest.h>

#include <optional>
#include <set>
#include <string_view>

#include "support/cubin.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

// What may fail and be told of. What gives things back is not here: nobody could do anything about it.
constexpr const char* kCalls[] = {"cuInit",
                                  "cuDeviceGetCount",
                                  "cuDeviceGetAttribute",
                                  "cuDevicePrimaryCtxRetain",
                                  "cuModuleLoadData",
                                  "cuModuleGetFunction",
                                  "cuFuncSetAttribute",
                                  "cuMemAlloc_v2",
                                  "cuMemAllocHost_v2",
                                  "cuMemcpyHtoDAsync_v2",
                                  "cuMemcpyDtoHAsync_v2",
                                  "cuMemcpyDtoDAsync_v2",
                                  "cuMemsetD8Async",
                                  "cuMemsetD16Async",
                                  "cuMemsetD32Async",
                                  "cuMemsetD2D32Async",
                                  "cuStreamCreate",
                                  "cuStreamSynchronize",
                                  "cuStreamWaitEvent",
                                  "cuEventCreate",
                                  "cuEventRecord",
                                  "cuEventSynchronize",
                                  "cuLaunchKernelEx",
                                  "cuStreamBeginCapture_v2",
                                  "cuStreamEndCapture",
                                  "cuGraphInstantiateWithFlags",
                                  "cuGraphLaunch"};
constexpr int64_t kFirst = 5, kWritten = 70000000007, kLast = 7;

// Two launches; between them values of each size are filled, and so is the state "count"; at the end the state is copied.
BundleText bundle() {
  GpuText gpu;
  gpu.shared = 60000;  // more than a kernel has without asking
  Sample s = cuda_add_sample(gpu);
  PlanText& p = s.plan;
  const int count = p.value("count", "i64", {}, {}, R"(["state","count"])");
  const int other = p.value("other", "i64", {}, {}, R"(["state","other"])");
  std::vector<std::string> fills = {p.fill(count, kLast), p.fill(other, kLast)};
  const auto filled = [&](const char* name, const char* dtype, int64_t bits) {
    fills.push_back(p.fill(p.output(name, dtype, {}, {}), bits));
    s.entry.outputs.push_back(manifest_tensor(dtype, name, {}, {}));
  };
  filled("byte", "i8", 1);
  filled("half", "f16", 2);
  filled("word", "i32", 3);
  filled("long", "i64", kWritten);
  fills.push_back(p.copy(count, p.output("n", "i64", {}, {})));
  s.entry.outputs.push_back(manifest_tensor("i64", "n", {}, {}));
  p.body.insert(p.body.begin() + 1, fills.begin(), fills.end());
  BundleText made = cuda_bundle_of({s}, gpu);
  made.states = {state_json("i64", "five", "count", {}), state_json("i64", "five", "other", {})};
  return made;
}

// What a program does with a device, step by step, until a step fails.
struct Work {
  Outcome failed{HT_OK, ""};
  std::optional<Model> model;
  std::optional<Session> session;
  int64_t count = -1, other = -1;  // the states before the step that failed, -1 where there were none

  bool is(const Status& status) {
    if (!status.ok()) failed = {status.code(), std::string(status.message())};
    return status.ok();
  }
  void open(const std::string& bytes, const ht_load_options& options, bool asynchronous);
  void use(bool asynchronous);
};

void Work::open(const std::string& bytes, const ht_load_options& options, bool asynchronous) {
  auto loaded = Model::load(bytes.data(), bytes.size(), &options);
  if (!is(loaded.status())) return;
  model = *loaded;
  ht_session_options how = ht_session_options_default();
  how.asynchronous = asynchronous ? 1 : 0;
  how.outputs = asynchronous ? HT_OUTPUTS_ON_DEVICE : how.outputs;
  auto made = model->new_session(&how);
  if (is(made.status())) session = std::move(*made);
}

void Work::use(bool asynchronous) {
  const float x[6] = {};
  const std::vector<Tensor> inputs = {Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})};
  count = other = kFirst;
  for (int i = 0; i < 4; ++i) {  // the third and those behind it as one CUDA graph
    int64_t found = 0;
    if (!is(session->run(inputs).status())) return;
    if (asynchronous && !is(session->synchronize())) return;
    count = other = kLast;
    if (!is(session->read_state("count", &found, sizeof found))) return;
    CHECK(found == kLast);
    if (!is(session->write_state("count", &kWritten, sizeof kWritten))) return;
    count = kWritten;
  }
  if (!is(session->reset())) return;
  count = other = kFirst;
  if (asynchronous) is(session->set_stream(reinterpret_cast<void*>(2)));
}

// Who left the state half written, as the sentence says it.
std::string said_of_writer(std::string_view sentence, const std::string& state) {
  const std::string before = "state \"" + state + "\" is half written: ";
  const std::string_view after = " failed; reset the session, or write every state that is";
  const bool known = sentence.size() > before.size() + after.size() && sentence.substr(0, before.size()) == before &&
                     sentence.substr(sentence.size() - after.size()) == after;
  return std::string(known ? sentence.substr(before.size(), sentence.size() - before.size() - after.size()) : sentence);
}

// After a step failed and the driver works again. `writers`: who left states half written.
void check_afterwards(Work& work, const std::string& bytes, const ht_load_options& options, bool asynchronous,
                      std::set<std::string>* writers) {
  if (work.count >= 0) {
    // What failed leaves the states that it found, or a session that says that they are lost.
    for (const auto& [name, before] : {std::pair{"count", work.count}, std::pair{"other", work.other}}) {
      int64_t found = 0;
      const Status known = work.session->read_state(name, &found, sizeof found);
      if (known.ok()) CHECK(found == before);
      if (known.ok()) continue;
      CHECK(known.code() == HT_STATES);
      writers->insert(said_of_writer(known.message(), name));
    }
    REQUIRE(work.session->reset().ok());
  } else {
    work.open(bytes, options, asynchronous);
    REQUIRE_MESSAGE(work.session, work.failed.message);
  }
  Work again;
  again.session = std::move(work.session);
  again.use(asynchronous);
  CHECK_MESSAGE(again.failed.message == "", again.failed.message);
}

}  // namespace

TEST_CASE("cuda: each call of the driver fails once, wherever it comes") {
  const std::string bytes = bundle().build();
  int tried = 0;
  std::set<std::string> writers;
  for (const bool asynchronous : {false, true}) {
    for (const char* call : kCalls) {
      const int error = std::string(call).find("Alloc") != std::string::npos ? 2 : 999;
      for (int number = 1, calls = 1; number <= calls; ++number) {
        const std::string name = call;
        CAPTURE(name);
        CAPTURE(number);
        CAPTURE(asynchronous);
        const NullDriver driver;
        const ht_load_options options = driver.options();
        Work work;
        null_set("HARDTACK_NULL_FAIL", std::string(call) + "=" + std::to_string(error) + "@" + std::to_string(number));
        work.open(bytes, options, asynchronous);
        if (work.session) work.use(asynchronous);
        const bool came = std::stoi("0" + null_take("calls")) >= number;
        null_set("HARDTACK_NULL_FAIL", "");
        if (!came) break;
        ++tried;
        calls = number + 1;
        const std::string said = "(" + std::to_string(error) + ": as the test asked)";
        // The second wait of a load is before its buffers are given back, when all has arrived.
        if (name == "cuStreamSynchronize" && number == 2) {
          CHECK(work.failed.message == "");
          continue;
        }
        CHECK_MESSAGE(work.failed.code != HT_OK, "the failure was not told");
        CHECK_MESSAGE(work.failed.message.find(said) != std::string::npos, work.failed.message);
        check_afterwards(work, bytes, options, asynchronous, &writers);
      }
    }
  }
  CHECK(tried > 100);
  CHECK(writers == std::set<std::string>{"a reset", "a run of entry \"forward\"", "a write"});
}

TEST_CASE("cuda: a context that cannot be made current is told of, and no other is taken off") {
  const std::string bytes = bundle().build();
  for (const bool asynchronous : {false, true}) {
    for (int number = 1; number < 5; ++number) {
      CAPTURE(number);
      CAPTURE(asynchronous);
      const NullDriver driver;
      const ht_load_options options = driver.options();
      Work work;
      null_set("HARDTACK_NULL_FAIL", "cuCtxPushCurrent_v2=201@" + std::to_string(number));
      work.open(bytes, options, asynchronous);
      if (work.session) work.use(asynchronous);
      CHECK(std::stoi("0" + null_take("calls")) >= number);
      null_set("HARDTACK_NULL_FAIL", "");
      CHECK_MESSAGE(work.failed.message.find("(201: ") != std::string::npos, work.failed.message);
      CHECK(null_take("problems") == "");
      std::set<std::string> writers;
      check_afterwards(work, bytes, options, asynchronous, &writers);
    }
  }
}
