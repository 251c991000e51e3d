// Models as the C interface shows them, files that change, options of other versions.
#include <dirent.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <tuple>

#include "support/samples.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

size_t count_maps() {
  std::ifstream maps("/proc/self/maps");
  size_t n = 0;
  for (std::string line; std::getline(maps, line);) ++n;
  return n;
}

size_t count_descriptors() {
  size_t n = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  while (::readdir(folder) != nullptr) ++n;
  ::closedir(folder);
  return n;
}

}  // namespace

TEST_CASE("metadata") {
  const Model model = load(bundle_of({add_sample(), count_sample(), gather_sample()}).build());
  const ht_model_info& info = model.info();
  CHECK(std::string(info.target) == "cpu:test");
  CHECK(std::string(info.device) == "cpu");
  CHECK(info.num_entries == 3);
  CHECK(info.num_states == 1);
  CHECK(info.num_constants == 1);
  CHECK(std::string(info.manifest).substr(0, 14) == "{\"constants\":[");
  CHECK(std::strlen(info.manifest) == info.manifest_nbytes);
  const char* version = nullptr;
  CHECK(std::string(ht_model_producer(model.get(), 1, &version)) == "torch");
  CHECK(std::string(version) == "2.13.0");
  CHECK(ht_model_producer(model.get(), 2, nullptr) == nullptr);

  const ht_entry_info& entry = *model.entry(0);
  CHECK(std::string(entry.name) == "forward");
  CHECK(entry.num_inputs == 2);
  CHECK(entry.num_instructions == 2);
  CHECK(entry.arena_lo == 0);
  CHECK(entry.arena_hi == 12032);
  CHECK(std::string(entry.in_tree) == R"({"kind":"none"})");
  const ht_tensor_info& x = *model.input(0, 0);
  CHECK(std::string(x.name) == "x");
  CHECK(std::string(x.dtype_name) == "f32");
  CHECK(x.shape[0].lo == 0);
  CHECK(x.shape[0].hi == 1000);
  CHECK(std::string(x.shape[0].text) == "s0");
  CHECK(x.shape[1].lo == 3);
  CHECK(std::string(x.shape[1].text) == "3");
  CHECK(model.input(0, 2) == nullptr);
  CHECK(model.input(9, 0) == nullptr);
  const ht_sym_info& s0 = *model.sym(0, 0);
  CHECK(s0.hi == 1000);
  CHECK(s0.dim == 0);
  const ht_array_info& table = *model.constant(0);
  CHECK(std::string(table.file) == "weights.safetensors");
  CHECK(static_cast<const float*>(table.data)[2] == 30);
  CHECK(model.state(0)->tensor == nullptr);
  CHECK(model.state(0)->nbytes == 8);
  CHECK(ht_model_find_entry(model.get(), "gather") == 2);
  CHECK(ht_model_find_entry(model.get(), "nothing") == SIZE_MAX);
}

TEST_CASE("inspect_only shows everything and runs nothing") {
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  BundleText bundle = bundle_of({add_sample()});
  bundle.targets = {R"({"device":"cpu","library":"lib/test.so","name":"cpu:test","requires":["quantum"]})"};
  bundle.members["lib/test.so"] = "not even ELF";
  const Model model = load(bundle.build(), &options);
  CHECK(model.target(0)->runnable == 0);
  CHECK(std::string(model.target(0)->missing) == "quantum");
  auto session = model.new_session();
  CHECK(std::string(session.status().message()) ==
        "the model was loaded with inspect_only: it has no native code to run");
}

TEST_CASE("targets: the first that runs, or the named one, or words") {
  BundleText bundle = bundle_of({add_sample()});
  PlanText fast = add_sample().plan;
  fast.target = "cpu:fast";
  bundle.plan(fast);
  bundle.target_names = {"cpu:fast", "cpu:test"};
  const std::string fast_target =
      R"({"device":"cpu","library":"lib/test.so","name":"cpu:fast","requires":["quantum","sse9"]})";
  const std::string test_target = bundle.targets[0];
  bundle.targets = {fast_target, test_target};
  CHECK(std::string(load(bundle.build()).info().target) == "cpu:test");
  ht_load_options options = ht_load_options_default();
  options.target = "cpu:test";
  CHECK(load_outcome(bundle.build(), &options).code == HT_OK);
  options.target = "cpu:fast";
  Outcome o = load_outcome(bundle.build(), &options);
  CHECK(o.code == HT_NO_TARGET);
  CHECK(o.message == "target cpu:fast needs quantum, sse9, which this machine lacks");
  options.target = "cpu:best";
  CHECK(load_outcome(bundle.build(), &options).message ==
        "the bundle has no target \"cpu:best\"; it has cpu:fast; cpu:test");
  options.target = nullptr;
  options.device = "tpu";
  CHECK(load_outcome(bundle.build(), &options).message ==
        "device \"tpu\": expected \"cpu\", \"cuda\" or \"cuda:<number>\"");
  options.device = "hip:1";
  CHECK(load_outcome(bundle.build(), &options).message ==
        "device \"hip:1\": this Hardtack runs cpu and cuda; it can check targets for AMD GPUs, but not run them");
  bundle.targets = {fast_target, R"({"device":"hip","library":null,"name":"cpu:test","requires":["gfx942"]})"};
  o = load_outcome(bundle.build());
  CHECK(o.code == HT_NO_TARGET);
  CHECK(o.message ==
        "nothing in the bundle runs on this machine: cpu:fast needs quantum, sse9; cpu:test is for device hip, which "
        "this Hardtack does not run");
  options.device = nullptr;
  options.target = "cpu:test";
  CHECK(load_outcome(bundle.build(), &options).message ==
        "target cpu:test is for device \"hip\"; this Hardtack runs cpu and cuda");
}

TEST_CASE("a file may be replaced or removed while its model is used") {
  TemporaryFile file(bundle_of({gather_sample()}).build());
  auto model = Model::load(file.path());
  REQUIRE_MESSAGE(model.ok(), std::string(model.status().message()));
  ::unlink(file.path().c_str());
  file.write("something else");
  Session session = session_of(*model);
  const int64_t index[] = {2};
  auto out = session.run({Tensor::of(index, {1})});
  REQUIRE(out.ok());
  CHECK(out->at(0).data<float>()[0] == 30);
}

TEST_CASE("with copy_weights a file may even be overwritten in place") {
  const TemporaryFile file(bundle_of({gather_sample()}).build());
  ht_load_options options = ht_load_options_default();
  options.copy_weights = 1;
  auto model = Model::load(file.path(), &options);
  REQUIRE_MESSAGE(model.ok(), std::string(model.status().message()));
  file.write("");
  Session session = session_of(*model);
  const int64_t index[] = {2};
  auto out = session.run({Tensor::of(index, {1})});
  REQUIRE(out.ok());
  CHECK(out->at(0).data<float>()[0] == 30);
}

TEST_CASE("files that cannot be loaded") {
  CHECK(outcome(ht_model_load("/nonexistent/model.pkg", nullptr, nullptr)).message ==
        "ht_model_load: path or model is null");
  ht_model* model = nullptr;
  const Outcome missing = outcome(ht_model_load("/nonexistent/model.pkg", nullptr, &model));
  CHECK(missing.code == HT_IO);
  CHECK(missing.message == "cannot open /nonexistent/model.pkg: No such file or directory");
  CHECK(outcome(ht_model_load("/tmp", nullptr, &model)).message == "/tmp is not a regular file");
  const TemporaryFile empty("");
  CHECK(outcome(ht_model_load(empty.path().c_str(), nullptr, &model)).message ==
        empty.path() + ": too short for a bundle: 0 bytes");
}

TEST_CASE("memory that is used in place is released once, after its last user") {
  const std::string bytes = add_bundle();
  int released = 0;
  const auto release = [](void* user) { ++*static_cast<int*>(user); };
  std::vector<char> storage(bytes.size() + 64);
  char* aligned = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
  std::memcpy(aligned, bytes.data(), bytes.size());
  ht_model* model = nullptr;
  REQUIRE(outcome(ht_model_load_memory(aligned, bytes.size(), release, &released, nullptr, &model)).code == HT_OK);
  ht_session* session = nullptr;
  REQUIRE(outcome(ht_session_create(model, nullptr, &session)).code == HT_OK);
  ht_model_free(model);
  CHECK(released == 0);
  ht_session_free(session);
  CHECK(released == 1);
  CHECK(outcome(ht_model_load_memory(aligned, bytes.size() - 1, release, &released, nullptr, &model)).code ==
        HT_BAD_BUNDLE);
  CHECK(released == 2);
  CHECK(outcome(ht_model_load_memory(aligned + 1, bytes.size(), release, &released, nullptr, &model)).message ==
        "ht_model_load_memory: data to be used in place must be aligned to 64 bytes");
  CHECK(released == 3);
}

TEST_CASE("loading and unloading a thousand times leaves nothing behind") {
  const TemporaryFile file(bundle_of({add_sample(), gather_sample(), count_sample()}).build());
  const auto once = [&file] {
    auto model = Model::load(file.path());
    REQUIRE(model.ok());
    Session session = session_of(*model);
    REQUIRE(session.run({}, "count").ok());
  };
  for (int i = 0; i < 20; ++i) once();
  const size_t maps = count_maps(), descriptors = count_descriptors();
  for (int i = 0; i < 1000; ++i) once();
  CHECK(count_maps() <= maps + 100);  // one left in ten loads would show; a sanitizer's allocator takes some by and by
  CHECK(count_descriptors() == descriptors);
}

TEST_CASE("two models loaded at once have their own code") {
  const std::string bytes = add_bundle();
  const float x[] = {1, 2, 3};
  const Model first = load(bytes), second = load(bytes);
  Session a = session_of(first), b = session_of(second);
  CHECK(a.run({Tensor::of(x, {1, 3}), Tensor::of(x, {1, 3})}).ok());
  { const Model third = load(bytes); }
  CHECK(b.run({Tensor::of(x, {1, 3}), Tensor::of(x, {1, 3})}).ok());
}

TEST_CASE("objects without a model or a session say so") {
  const auto says = [](const Status& status, const char* message) {
    CHECK(status.code() == HT_INVALID_ARGUMENT);
    CHECK(std::string(status.message()) == message);
  };
  says(Model().new_session().status(), "ht_session_create: model or session is null");
  const auto says_nothing_else = [&says](Session& empty) {
    says(empty.run({}).status(), "the session is null");
    says(empty.run({}, "add").status(), "the session is null");
    says(empty.run("add", nullptr, 0, nullptr, 0), "the session is null");
    says(empty.reset(), "the session is null");
    CHECK(empty.memory().arena_nbytes == 0);
  };
  Session never, moved = session_of(load(add_bundle()));
  const Session taken = std::move(moved);
  says_nothing_else(never);
  says_nothing_else(moved);
}

TEST_CASE("option structs of other versions") {
  const std::string bytes = add_bundle();
  ht_load_options options = ht_load_options_default();
  options.struct_size = 3;
  CHECK(load_outcome(bytes, &options).message ==
        "ht_load_options.struct_size is 3, expected " + std::to_string(sizeof options));
  options.struct_size = sizeof(size_t);  // older: nothing is set
  options.inspect_only = 1;
  const Model model = load(bytes, &options);
  CHECK(model.new_session().ok());
  struct Newer {
    ht_load_options known;
    int64_t unknown[2];
  } newer = {ht_load_options_default(), {0, 0}};
  newer.known.struct_size = sizeof newer;
  CHECK(load_outcome(bytes, &newer.known).code == HT_OK);
  newer.unknown[1] = 1;
  CHECK(load_outcome(bytes, &newer.known).message ==
        "ht_load_options asks for something that Hardtack 0.1.0 does not know (byte " +
            std::to_string(sizeof options + 8) + ")");
}

TEST_CASE("status and dtype helpers") {
  CHECK(ht_status_code(nullptr) == HT_OK);
  CHECK(std::string(ht_status_message(nullptr)) == "");
  ht_status_free(nullptr);
  CHECK(std::string(ht_code_name(HT_CONTRACT)) == "HT_CONTRACT");
  ht_dtype dtype = {};
  CHECK(outcome(ht_dtype_from_name("bf16", &dtype)).code == HT_OK);
  CHECK(dtype.code == 4);
  CHECK(std::string(ht_dtype_name(dtype)) == "bf16");
  for (const auto& [name, code, bits] :
       {std::tuple{"u16", 1, 16}, {"u32", 1, 32}, {"f8e4m3fn", 10, 8}, {"f8e5m2", 12, 8}, {"f8e8m0fnu", 14, 8}}) {
    CHECK(outcome(ht_dtype_from_name(name, &dtype)).code == HT_OK);
    CHECK((dtype.code == code && dtype.bits == bits));
    CHECK(std::string(ht_dtype_name(dtype)) == name);
  }
  CHECK(outcome(ht_dtype_from_name("c32", &dtype)).message == "unknown dtype \"c32\"");
  CHECK(ht_dtype_name({5, 32, 1}) == nullptr);
  CHECK(ht_dtype_name({5, 64, 1}) == std::string("c64"));
  CHECK(outcome(ht_dtype_from_name("c128", &dtype)).message.empty());
  CHECK((dtype.code == 5 && dtype.bits == 128 && dtype.lanes == 1));
}
