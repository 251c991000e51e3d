// Functions of the program that compute ops of bundles.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "support/samples.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

int32_t fill(const ht_kernel_call* call) {
  float* const out = static_cast<float*>(call->results[0].data);
  for (int64_t i = 0; i < ht_numel(&call->results[0]); ++i) out[i] = *static_cast<const float*>(call->user_data);
  return call->arguments[0].value.integer == 4 ? 0 : 1;
}

int32_t fail(const ht_kernel_call* call) { return ht_fail(call, std::string(2000, 'x').c_str()); }

}  // namespace

TEST_CASE("a function of the program computes an op") {
  float value = 2.5f;
  REQUIRE(register_op("test.fill", fill, &value).ok());
  CHECK(register_op("test.fill", fill, &value).ok());
  Session session = session_of(load(host_bundle("test.fill").build()));
  for (const float wanted : {2.5f, 7.0f}) {
    value = wanted;
    const auto run = session.run({});
    REQUIRE_MESSAGE(run.ok(), std::string(run.status().message()));
    for (int i = 0; i < 4; ++i) CHECK(run->at(0).data<float>()[i] == wanted);
  }
}

TEST_CASE("a function that fails says why, as much as there is room for") {
  REQUIRE(register_op("test.fail", fail).ok());
  Session session = session_of(load(host_bundle("test.fail").build()));
  const auto run = session.run({});
  CHECK(run.status().code() == HT_KERNEL);
  CHECK(std::string(run.status().message()) ==
        "entry \"forward\", instruction 0 (model.py:31, aten.add) [host_f32]: " + std::string(511, 'x'));
}

TEST_CASE("functions that are not registered are named, and a model that is only inspected needs none") {
  const std::string bytes = host_bundle("test.nobody").build();
  const Outcome refused = load_outcome(bytes);
  CHECK(refused.code == HT_NO_TARGET);
  CHECK(refused.message ==
        "ops of the bundle are computed by functions of the program, and these are not registered: \"test.nobody\" for "
        "mine.op; call ht_register_op before the bundle is loaded");
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  const Model model = load(bytes, &options);
  REQUIRE(model.info().num_user_kernels == 1);
  const char* function = nullptr;
  int32_t host = 0;
  CHECK(std::string(ht_model_user_kernel(model.get(), 0, &function, &host)) == "mine.op");
  CHECK(std::string(function) == "test.nobody");
  CHECK(host == 1);
  CHECK(ht_model_user_kernel(model.get(), 1, nullptr, nullptr) == nullptr);
}

TEST_CASE("what cannot be registered is refused") {
  REQUIRE(register_op("test.taken", fill).ok());
  CHECK(outcome(ht_register_op("test.taken", HT_CALL_ABI_VERSION, fail, nullptr)).message ==
        "ht_register_op: another function is registered as \"test.taken\"");
  CHECK(
      outcome(ht_register_op("test.later", HT_CALL_ABI_VERSION + 1, fill, nullptr)).message ==
      "ht_register_op: \"test.later\" is written for version 2 of hardtack/kernel.h, this version of Hardtack (0.1.0) "
      "calls version 1");
  for (const Outcome& o : {outcome(ht_register_op(nullptr, 1, fill, nullptr)),
                           outcome(ht_register_op("test.null", 1, nullptr, nullptr))}) {
    CHECK(o.code == HT_INVALID_ARGUMENT);
    CHECK(o.message == "ht_register_op: name or kernel is null");
  }
}

TEST_CASE("plans call no function that the manifest does not name") {
  BundleText bundle = host_bundle("test.named");
  bundle.user_kernels = {R"({"function":"test.named","host":false,"op":"mine.op"})"};
  CHECK(
      load_outcome(bundle.build()).message ==
      "plan of \"forward\" for cpu:test: kernel host_f32 calls the host's function \"test.named\", which the manifest "
      "does not name");
}
