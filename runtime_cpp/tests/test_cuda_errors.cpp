// What users are told when a CUDA device is missing, unfit or failing.
#include <doctest/doctest.h>

#include "support/cubin.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

std::string load_error(const std::string& bytes, const ht_load_options& options, ht_code code) {
  const Outcome o = load_outcome(bytes, &options);
  CHECK(o.code == code);
  return o.message;
}

// The error of one run with host tensors, after `sets` are set.
Outcome run_error(const NullDriver& driver, const GpuText& gpu, const std::string& setting = "",
                  const std::string& value = "") {
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample(gpu)}, gpu).build(), &options);
  Session session = session_of(model);
  if (!setting.empty()) null_set(setting, value);
  const float x[6] = {};
  const auto result = session.run({Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})});
  null_set("HARDTACK_NULL_FAIL", "");
  return {result.status().code(), std::string(result.status().message())};
}

}  // namespace

TEST_CASE("cuda: no driver, no device, no such device, another device") {
  const NullDriver driver;
  const std::string bytes = cuda_bundle_of({cuda_add_sample()}).build();
  ht_load_options options = driver.options();
  options.cuda_driver = "/nowhere/libcuda.so.1";
  CHECK(load_error(bytes, options, HT_NO_TARGET) ==
        "there is no CUDA driver: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory; "
        "install NVIDIA's driver (in a container: start it with the GPU), or load with device \"cpu\"");
  options = driver.options();
  options.device = "cuda:7";
  CHECK(load_error(bytes, options, HT_NO_TARGET) == "there is no device cuda:7: the CUDA driver sees 1 device");
  options.device = "cuda:x";
  CHECK(load_error(bytes, options, HT_NO_TARGET) ==
        "device \"cuda:x\": expected \"cpu\", \"cuda\" or \"cuda:<number>\"");
  options.device = "cuda";
  null_set("HARDTACK_NULL_ARCH", "80");
  CHECK(
      load_error(bytes, options, HT_NO_TARGET) ==
      "nothing in the bundle runs on this machine's CUDA device: cuda:sm_90 needs sm_90; this device (NVIDIA Null) is "
      "sm_80");
  options.device = "cpu";
  CHECK(load_error(bytes, options, HT_NO_TARGET) ==
        "nothing in the bundle runs on this machine: cuda:sm_90 is for device cuda");
  options.device = "cuda";
  CHECK(
      load_error(add_bundle(), options, HT_NO_TARGET) ==
      "nothing in the bundle runs on this machine's CUDA device: cpu:test is for device cpu; this device (NVIDIA Null) "
      "is sm_80");
}

TEST_CASE("cuda: any machine can look at a bundle") {
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &options);
  CHECK(ht_model_target(model.get(), 0)->runnable == 0);
  CHECK(ht_model_target(model.get(), 0)->missing == std::string("sm_90"));
}

TEST_CASE("cuda: memory runs out") {
  const NullDriver driver;
  const Outcome o = run_error(driver, {}, "HARDTACK_NULL_FAIL", "cuMemAlloc_v2=2");
  CHECK(o.code == HT_OUT_OF_MEMORY);
  CHECK(o.message == "the arena: allocating 256 bytes on the device: CUDA_ERROR_OUT_OF_MEMORY (2: as the test asked)");
}

TEST_CASE("cuda: a launch fails, and is named with its place") {
  const NullDriver driver;
  const Outcome o = run_error(driver, {}, "HARDTACK_NULL_FAIL", "cuLaunchKernelEx=701");
  CHECK(o.code == HT_DEVICE);
  CHECK(o.message ==
        "entry \"forward\", instruction 0 (model.py:31, aten.add) [add_f32]: launching a kernel: "
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701: as the test asked)");
}

TEST_CASE("cuda: an illegal address shows when the host waits, and the device is lost") {
  const NullDriver driver;
  const Outcome o = run_error(driver, {}, "HARDTACK_NULL_FAIL", "cuStreamSynchronize=700");
  CHECK(o.code == HT_DEVICE);
  CHECK(
      o.message ==
      "entry \"forward\": waiting for the device: CUDA_ERROR_ILLEGAL_ADDRESS (700: as the test asked); this process "
      "has "
      "lost the device: every later CUDA call of it fails, start another [one of its 2 launches, or something earlier "
      "on the stream; an observer tells which]");
}

TEST_CASE("cuda: what a kernel reports becomes the error that a CPU kernel gives") {
  const NullDriver driver;
  const Outcome o = run_error(driver, {}, "HARDTACK_NULL_REPORT", "add_f32:4:5:1");
  CHECK(o.code == HT_KERNEL);
  CHECK(o.message ==
        "entry \"forward\", instruction 0 (model.py:31, aten.add): an index is out of range [kernel add_f32]");
}

TEST_CASE("cuda: a report is given once, also by an asynchronous session") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &options);
  ht_session_options asynchronous = ht_session_options_default();
  asynchronous.asynchronous = 1;
  asynchronous.outputs = HT_OUTPUTS_ON_DEVICE;
  auto session = model.new_session(&asynchronous);
  REQUIRE(session.ok());
  const float x[6] = {};
  const std::vector<Tensor> inputs = {Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})};
  null_set("HARDTACK_NULL_REPORT", "add_f32:4:5:2");
  CHECK(session->run(inputs).ok());
  null_set("HARDTACK_NULL_REPORT", "");
  const Status later = session->synchronize();
  CHECK(later.code() == HT_KERNEL);
  CHECK(std::string(later.message()).find("an assertion of the model failed") != std::string::npos);
  CHECK(session->synchronize().ok());
  CHECK(session->run(inputs).ok());
  CHECK(session->synchronize().ok());
}

namespace {

// The sum of cuda_add_sample, whose second launch comes after a fill of the state "count".
Sample torn_sample() {
  Sample s = cuda_add_sample();
  const int count = s.plan.value("count", "i64", {}, {}, R"(["state","count"])");
  s.plan.body.insert(s.plan.body.begin() + 1, s.plan.fill(count, 7));
  return s;
}

}  // namespace

TEST_CASE("cuda: a run that fails leaves a session that says so until its states are whole, replayed or not") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  BundleText bundle = cuda_bundle_of({torn_sample()});
  bundle.states = {state_json("i64", "five", "count", {})};
  const Model model = load(bundle.build(), &options);
  for (const bool asynchronous : {false, true}) {
    ht_session_options session_options = ht_session_options_default();
    session_options.asynchronous = asynchronous ? 1 : 0;
    session_options.outputs = HT_OUTPUTS_ON_DEVICE;
    auto session = model.new_session(&session_options);
    REQUIRE(session.ok());
    const float x[6] = {};
    const std::vector<Tensor> inputs = {Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})};
    for (int repeats : {0, 3}) {
      int64_t count = 0;
      REQUIRE(session->reset().ok());
      REQUIRE(session->read_state("count", &count, sizeof count).ok());
      CHECK(count == 5);
      for (int i = 0; i < repeats; ++i) CHECK(session->run(inputs).ok());
      null_set("HARDTACK_NULL_REPORT", "add_f32:4:5:1");
      const ht_code code = session->run(inputs).status().code();
      null_set("HARDTACK_NULL_REPORT", "");
      CHECK(code == (asynchronous ? HT_OK : HT_KERNEL));
      // an asynchronous session tells at the first call that waits
      if (asynchronous) CHECK(session->read_state("count", &count, sizeof count).code() == HT_KERNEL);
      CHECK(session->read_state("count", &count, sizeof count).code() == HT_STATES);
      CHECK(session->run(inputs).status().code() == HT_STATES);
      count = 5;
      REQUIRE(session->write_state("count", &count, sizeof count).ok());
      CHECK(session->run(inputs).ok());
    }
  }
}

TEST_CASE("cuda: a run that breaks off says nothing of what an earlier one is still writing") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  Sample other = cuda_add_sample();
  other.plan.entry = other.entry.name = "other";
  BundleText bundle = cuda_bundle_of({torn_sample(), other});
  bundle.states = {state_json("i64", "five", "count", {})};
  const Model model = load(bundle.build(), &options);
  ht_session_options session_options = ht_session_options_default();
  session_options.asynchronous = 1;
  session_options.outputs = HT_OUTPUTS_ON_DEVICE;
  auto session = model.new_session(&session_options);
  REQUIRE(session.ok());
  const float x[6] = {};
  const std::vector<Tensor> inputs = {Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})};
  const auto started = [&](const std::string& report) {
    REQUIRE(session->reset().ok());
    null_set("HARDTACK_NULL_REPORT", report);
    CHECK(session->run(inputs, "forward").ok());
    null_set("HARDTACK_NULL_REPORT", "");
  };
  const auto broken_off = [&] {
    null_set("HARDTACK_NULL_FAIL", "cuLaunchKernelEx=701");
    const ht_code code = session->run(inputs, "other").status().code();
    null_set("HARDTACK_NULL_FAIL", "");
    return code;
  };
  int64_t count = 0;
  started("");
  CHECK(broken_off() == HT_DEVICE);
  REQUIRE(session->read_state("count", &count, sizeof count).ok());
  CHECK(count == 7);
  CHECK(session->run(inputs, "forward").ok());

  started("add_f32:4:5:1");
  CHECK(broken_off() == HT_KERNEL);  // what the earlier run reports came first
  CHECK(session->read_state("count", &count, sizeof count).code() == HT_STATES);

  // nor is it what an observer sees
  started("add_f32:4:5:1");
  REQUIRE(session->set_observer([](void*, const ht_step*) { return 0; }, nullptr).ok());
  const auto observed = session->run(inputs, "other");
  CHECK(std::string(observed.status().message()).find("entry \"forward\", instruction ") == 0);
  CHECK(session->read_state("count", &count, sizeof count).code() == HT_STATES);
  CHECK(session->run(inputs, "other").ok());
}

TEST_CASE("cuda: parameters, functions and shared memory are compared with the code and the device") {
  const NullDriver driver;
  GpuText gpu;
  gpu.args = R"([["buffer",0],["buffer",1],["buffer",2],["int",0,"i64"],["status"],["site"],["scratch"]])";
  CHECK(run_error(driver, gpu).message ==
        "entry \"forward\" with s0 = 2: kernel add_f32: parameter 3 of add_f32 has 4 bytes at 24, the plan says 8 "
        "behind 24");
  gpu.args = R"([["buffer",0],["buffer",1],["buffer",2]])";
  CHECK(run_error(driver, gpu).message ==
        "entry \"forward\" with s0 = 2: kernel add_f32: add_f32 has more parameters than the 3 of the plan");
  gpu = GpuText();
  gpu.shared = 200000;
  null_set("HARDTACK_NULL_ARCH", "90");
  CHECK(run_error(driver, gpu).code == HT_OK);
  gpu = GpuText();
  gpu.function = "other";
  const ht_load_options options = driver.options();
  CHECK(load_error(cuda_bundle_of({cuda_add_sample(gpu)}, gpu).build(), options, HT_BAD_BUNDLE) ==
        "kernel code " + kernel_member(gpu.code) + ": it has no function other");
  gpu = GpuText();
  gpu.code = cubin("add_f32", {}, 80);
  CHECK(load_error(cuda_bundle_of({cuda_add_sample(gpu)}, gpu).build(), options, HT_BAD_BUNDLE) ==
        "kernel code " + kernel_member(gpu.code) + ": it is for sm_80, its target is for sm_90");
}

TEST_CASE("cuda: tensors of another device, streams on the CPU") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &options);
  Session session = session_of(model);
  const float x[6] = {};
  const Tensor here = Tensor::of(x, {2, 3});
  const auto refused = session.run({here, here.on(2, 1)});
  CHECK(refused.status().code() == HT_CONTRACT);
  CHECK(std::string(refused.status().message()) ==
        "input \"y\" (1 of entry \"forward\"): it lies on device type 2, number 1; expected the host or type 2, number "
        "0");
  const Model cpu = load(add_bundle());
  ht_session_options asynchronous = ht_session_options_default();
  asynchronous.asynchronous = 1;
  CHECK(std::string(cpu.new_session(&asynchronous).status().message()) ==
        "ht_session_options: a session on the CPU has no stream and always waits");
}
