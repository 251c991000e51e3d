// Sessions on a CUDA device, through the null driver: what is uploaded, copied, launched, recorded and freed.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "support/cubin.h"

using namespace hardtack;
using namespace hardtack::testing;

namespace {

const char* const kLaunches =
    "launch add_f32 grid 2x1x1 block 128 shared 0\n"
    "launch add_f32 grid 2x1x1 block 128 shared 0\n";

struct Fixture {
  explicit Fixture(const std::vector<Sample>& samples = {cuda_add_sample()}, ht_session_options given = {}) {
    const ht_load_options options = driver.options();
    model = std::make_unique<Model>(load(cuda_bundle_of(samples).build(), &options));
    given.struct_size = sizeof given;
    auto created = model->new_session(&given);
    REQUIRE_MESSAGE(created.ok(), std::string(created.status().message()));
    session = std::make_unique<Session>(std::move(*created));
    null_take("log");
  }

  // A tensor on the device, f32 [rows, 3].
  ht_tensor on_device(int64_t rows, size_t offset = 0) {
    memory.emplace_back(nullptr);
    REQUIRE(ht_model_allocate(model->get(), static_cast<size_t>(rows) * 12 + offset, &memory.back()) == nullptr);
    shapes.push_back(std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{rows, 3}));
    ht_tensor t = {};
    t.data = memory.back();
    t.byte_offset = offset;
    t.device = {2, 0};
    t.ndim = 2;
    t.dtype = {2, 32, 1};
    t.shape = shapes.back()->data();
    null_take("log");
    return t;
  }

  std::string run(std::vector<ht_tensor> inputs, ht_tensor* output) {
    const Status status = session->run(nullptr, inputs.data(), inputs.size(), output, 1);
    CHECK_MESSAGE(status.ok(), std::string(status.message()));
    return null_take("log");
  }

  ~Fixture() {
    for (void* m : memory) ht_model_deallocate(model->get(), m);
  }

  NullDriver driver;  // outlives the others
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
  std::vector<void*> memory;
  std::vector<std::unique_ptr<std::vector<int64_t>>> shapes;
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("cuda: the weights of the programs are uploaded at load, code is loaded when it is first used") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  {
    const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &options);
    const std::string log = null_take("log");
    CHECK(count(log, "allocate 256\n") == 1);  // w; no program reads "five"
    CHECK(count(log, "copy_in 12\n") == 1);
    CHECK(count(log, "module") == 0);
    CHECK(std::string(model.info().device) == "cuda");
    CHECK(static_cast<const char*>(ht_model_constant(model.get(), 1)->data)[0] == 1);  // on the host
    CHECK(model.entry(0)->no_graph == std::string());
    Session session = session_of(model);
    const float x[6] = {};
    REQUIRE(session.run({Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})}).ok());
    CHECK(count(null_take("log"), "module") == 1);
  }
}

TEST_CASE("cuda: host tensors are copied there and back") {
  Fixture f;
  const float x[6] = {};
  const Tensor tx = Tensor::of(x, {2, 3});
  ht_tensor out = {};
  const std::string log = f.run({tx.c_tensor(), tx.c_tensor()}, &out);
  CHECK(count(log, "copy_in 24\n") == 2);
  CHECK(log.find(kLaunches) != std::string::npos);
  CHECK(count(log, "copy_out 24\n") == 1);
  CHECK(out.device.device_type == 1);
  CHECK(static_cast<unsigned char*>(out.data)[23] == 0xCD);  // what the null driver leaves in memory
  float z[6] = {};
  const Tensor tz = Tensor::of(z, {2, 3});
  out = tz.c_tensor();
  f.run({tx.c_tensor(), tx.c_tensor()}, &out);
  CHECK(reinterpret_cast<unsigned char*>(z)[0] == 0xCD);
}

TEST_CASE("cuda: device tensors are used in place, and copied where they are not aligned to 16 bytes") {
  Fixture f;
  const ht_tensor x = f.on_device(2), y = f.on_device(2), odd = f.on_device(2, 4);
  ht_tensor out = {};
  std::string log = f.run({x, y}, &out);
  CHECK(count(log, "copy") == 0);
  CHECK(log.find(kLaunches) != std::string::npos);
  CHECK(out.device.device_type == 2);
  ht_tensor mine = f.on_device(2), odd_out = f.on_device(2, 8);
  CHECK(count(f.run({x, odd}, &mine), "copy 24\n") == 1);
  CHECK(count(f.run({x, y}, &odd_out), "copy 24\n") == 1);
  CHECK(f.session->memory().staging_nbytes == 512);
}

TEST_CASE("cuda: after the first run of a shape nothing is allocated, after the second nothing is launched singly") {
  Fixture f;
  const ht_tensor x = f.on_device(2), y = f.on_device(2);
  ht_tensor out = {};
  f.run({x, y}, &out);
  std::string log = f.run({x, y}, &out);
  CHECK(count(log, "allocate") == 0);
  CHECK(count(log, "capture\n") == 1);
  CHECK(count(log, "graph of 2\n") == 1);
  log = f.run({x, y}, &out);
  CHECK(log == "graph of 2\nsynchronize\n");
  CHECK(f.session->memory().num_graphs == 1);
  // Other pointers run singly at first; the first recording stays.
  const ht_tensor other = f.on_device(2);
  CHECK(count(f.run({other, y}, &out), "launch add_f32") == 2);
  CHECK(count(f.run({other, y}, &out), "capture\n") == 1);
  CHECK(count(f.run({x, y}, &out), "graph of 2\n") == 1);
  // A larger shape moves the arena: what was recorded is forgotten.
  const ht_tensor large_x = f.on_device(900), large_y = f.on_device(900);
  f.run({large_x, large_y}, &out);
  CHECK(count(f.run({x, y}, &out), "launch add_f32") == 2);
}

TEST_CASE("cuda: recordings of a shape are bounded") {
  Fixture f;
  const ht_tensor y = f.on_device(2);
  for (int i = 0; i < 12; ++i) {
    const ht_tensor x = f.on_device(2);
    ht_tensor out = {};
    f.run({x, y}, &out);
    f.run({x, y}, &out);
  }
  CHECK(f.session->memory().num_graphs == 8);
}

TEST_CASE("cuda: graphs can be turned off, and control flow is never recorded") {
  ht_session_options options = ht_session_options_default();
  options.graphs = HT_GRAPHS_OFF;
  Fixture off({cuda_add_sample()}, options);
  const ht_tensor x = off.on_device(2);
  ht_tensor out = {};
  for (int i = 0; i < 3; ++i) CHECK(count(off.run({x, x}, &out), "launch add_f32") == 2);
}

TEST_CASE("cuda: an if reads its condition from the device") {
  Fixture f({cuda_branch_sample()});
  for (const bool flag : {true, false, true}) {
    const Tensor in = Tensor::of(&flag, {});
    ht_tensor out = {};
    const std::string log = f.run({in.c_tensor()}, &out);
    CHECK(count(log, "copy_out 1\n") == 1);
    CHECK(count(log, "capture") == 0);
    CHECK(static_cast<int32_t*>(out.data)[3] == (flag ? 7 : 9));
  }
  CHECK(f.model->entry(0)->no_graph ==
        std::string("its plan has 1 if and 0 while: the host reads their conditions between launches"));
}

TEST_CASE("cuda: states lie on the device and start from their constants") {
  Fixture f({cuda_state_sample()});
  ht_tensor out = {};
  f.run({}, &out);
  CHECK(*static_cast<int64_t*>(out.data) == 5);
  const int64_t value = 77;
  REQUIRE(f.session->write_state("count", &value, sizeof value).ok());
  f.run({}, &out);
  CHECK(*static_cast<int64_t*>(out.data) == 77);
  REQUIRE(f.session->reset().ok());
  int64_t back = 0;
  REQUIRE(f.session->read_state("count", &back, sizeof back).ok());
  CHECK(back == 5);
}

TEST_CASE("cuda: own outputs go where the options say") {
  for (const ht_outputs where : {HT_OUTPUTS_ON_HOST, HT_OUTPUTS_ON_DEVICE}) {
    ht_session_options options = ht_session_options_default();
    options.outputs = where;
    Fixture f({cuda_add_sample()}, options);
    const ht_tensor x = f.on_device(2);
    const float host[6] = {};
    ht_tensor out = {};
    const Tensor on_host = Tensor::of(host, {2, 3});
    f.run({x, on_host.c_tensor()}, &out);
    CHECK(out.device.device_type == (where == HT_OUTPUTS_ON_HOST ? 1 : 2));
  }
}

TEST_CASE("cuda: an asynchronous session waits only when asked to, or when the host needs a result") {
  ht_session_options options = ht_session_options_default();
  options.asynchronous = 1;
  Fixture f({cuda_add_sample()}, options);
  const ht_tensor x = f.on_device(2);
  ht_tensor out = {};
  CHECK(count(f.run({x, x}, &out), "synchronize") == 0);
  REQUIRE(f.session->synchronize().ok());
  CHECK(count(null_take("log"), "synchronize") == 1);
  float z[6];
  const Tensor tz = Tensor::of(z, {2, 3});
  out = tz.c_tensor();
  CHECK(count(f.run({x, x}, &out), "synchronize") == 1);
}

TEST_CASE("cuda: work goes to the caller's stream, and changes to another in order") {
  ht_session_options options = ht_session_options_default();
  options.stream = reinterpret_cast<void*>(1);  // the legacy default stream, which cannot be captured
  Fixture f({cuda_add_sample()}, options);
  const ht_tensor x = f.on_device(2);
  ht_tensor out = {};
  f.run({x, x}, &out);
  CHECK(count(f.run({x, x}, &out), "graph of 2\n") == 1);
  REQUIRE(f.session->set_stream(reinterpret_cast<void*>(2)).ok());
  CHECK(null_take("log") == "wait for an event\n");
  CHECK(count(f.run({x, x}, &out), "graph of 2\n") == 1);
  CHECK(ht_session_options_default().stream == nullptr);
}

TEST_CASE("cuda: no programs, no launch") {
  Fixture f;
  const ht_tensor x = f.on_device(0);
  ht_tensor out = {};
  CHECK(count(f.run({x, x}, &out), "launch") == 0);
  CHECK(out.shape[0] == 0);
}

TEST_CASE("cuda: clusters, dependent launches, shared memory and scratch come from the record") {
  NullDriver driver;
  GpuText gpu;
  gpu.cluster = 16;
  gpu.dependent = true;
  gpu.shared = 100000;
  gpu.scratch = 128;
  gpu.scratch_align = 128;
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample(gpu)}, gpu).build(), &options);
  Session session = session_of(model);
  const float x[6] = {};
  REQUIRE(session.run({Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})}).ok());
  const std::string log = null_take("log");
  CHECK(count(log, "attribute 8 = 100000\n") == 1);
  CHECK(count(log, "attribute 14 = 1\n") >= 1);
  CHECK(count(log,
              "launch add_f32 grid 32x1x1 block 128 shared 100000\n"
              "with attribute 4 = 16\nwith attribute 5 = 1\nwith attribute 6 = 1\n") == 2);
  CHECK(session.memory().workspace_nbytes == 2 * 32 * 128);  // apart: the two may overlap in time
}

TEST_CASE("cuda: a tensor map that does not fit its value is refused when the sizes are known") {
  NullDriver driver;
  GpuText gpu;
  gpu.code = cubin("add_f32", {{128, false}, {8, true}, {8, true}, {4, false}, {8, false}});
  gpu.args = R"([["map",0],["buffer",1],["buffer",2],["map_shape",0,1],["map_stride",0,0]])";
  gpu.maps = R"([{"block":[8,16],"dtype":"f32","swizzle":2}])";
  Sample s = cuda_add_sample(gpu);
  PlanText& p = s.plan;
  const int s0 = p.sym(0), one = p.n(1), four = p.n(4), zero = p.n(0), numel = p.op("mul", {p.n(3), s0});
  // Rows of 4 elements, where x has rows of 3.
  const std::string map = "[{\"buffer\":0,\"offset\":" + std::to_string(zero) + ",\"shape\":" + numbers({s0, four}) +
                          ",\"strides\":" + numbers({four, one}) + "}]";
  p.body = {p.gpu_launch(0, {0, 1, 3}, {numel}, {s0, one, one}, map),
            p.gpu_launch(0, {3, 0, 2}, {numel}, {s0, one, one}, map)};
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({s}, gpu).build(), &options);
  Session session = session_of(model);
  const float x[24] = {};
  const Tensor tx = Tensor::of(x, {8, 3});
  const auto refused = session.run({tx, tx});
  CHECK(std::string(refused.status().message()).find("tensor map 0 leaves \"x\"") != std::string::npos);
}

TEST_CASE("cuda: the observer waits for each instruction and sees values on the host") {
  Fixture f;
  const ht_tensor x = f.on_device(2);
  ht_tensor out = {};
  struct Seen {
    int count = 0;
    int32_t device = 0;
  } seen;
  REQUIRE(f.session
              ->set_observer(
                  [](void* user, const ht_step* step) -> int32_t {
                    auto* s = static_cast<Seen*>(user);
                    ++s->count;
                    s->device = static_cast<int32_t>(step->tensors[0].device.device_type);
                    return static_cast<const unsigned char*>(step->tensors[0].data)[0] == 0xCD ? 0 : 1;
                  },
                  &seen)
              .ok());
  const std::string log = f.run({x, x}, &out);
  CHECK(seen.count == 2);
  CHECK(seen.device == 1);
  CHECK(count(log, "synchronize") == 5);
}

TEST_CASE("cuda: threads with sessions of their own share a model, its code and its weights") {
  const NullDriver driver;
  const ht_load_options options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &options);
  std::atomic<int> num_bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&model, &num_bad, t] {
      auto session = model.new_session();
      if (!session.ok()) return void(++num_bad);
      for (int i = 0; i < 40; ++i) {
        const int64_t rows = 1 + (i + t) % 5;
        const std::vector<float> x(static_cast<size_t>(rows) * 3);
        const Tensor tensor = Tensor::of(x.data(), {rows, 3});
        if (!session->run({tensor, tensor}).ok()) ++num_bad;
        if (i % 16 == 15 && !session->trim().ok()) ++num_bad;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_bad == 0);
  CHECK(count(null_take("log"), "module\n") == 1);
}

TEST_CASE("cuda: fills of every element size, a size that is read from the device") {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "fills";
  p.target = "cuda:sm_90";
  const int s0 = p.sym(0), one = p.n(1);
  p.input("n", "i64", {}, {});
  p.symbol("s0", 0, "8", 0, "null");
  const int a = p.output("a", "u8", {s0}, {one}), b = p.output("b", "i16", {s0}, {one});
  const int c = p.output("c", "i32", {s0}, {one}), d = p.output("d", "i64", {s0}, {one});
  p.body = {p.fill(a, 0x11), p.fill(b, 0x2211), p.fill(c, 0x44332211), p.fill(d, 0x0000000700000009)};
  s.entry.inputs = {manifest_tensor("i64", "n", {}, {})};
  for (const auto& [name, dtype] : {std::pair{"a", "u8"}, {"b", "i16"}, {"c", "i32"}, {"d", "i64"}}) {
    s.entry.outputs.push_back(manifest_tensor(dtype, name, {"\"s0\""}, {"1"}));
  }
  s.entry.syms = {R"({"hi":8,"lo":0,"name":"s0"})"};
  ht_session_options options = ht_session_options_default();
  options.outputs = HT_OUTPUTS_ON_HOST;
  Fixture f({s}, options);
  ht_tensor n = f.on_device(1);
  n.ndim = 0;
  n.dtype = {0, 64, 1};
  *static_cast<int64_t*>(n.data) = 3;  // the null driver's memory is the host's
  ht_tensor out[4] = {};
  const Status status = f.session->run(nullptr, &n, 1, out, 4);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  CHECK(out[0].shape[0] == 3);
  CHECK(static_cast<uint8_t*>(out[0].data)[2] == 0x11);
  CHECK(static_cast<int16_t*>(out[1].data)[2] == 0x2211);
  CHECK(static_cast<int32_t*>(out[2].data)[2] == 0x44332211);
  CHECK(static_cast<int64_t*>(out[3].data)[2] == 0x0000000700000009);
}

TEST_CASE("cuda: the caller's allocator gives device memory, and max_nbytes counts it") {
  const NullDriver driver;
  const ht_load_options load_options = driver.options();
  const Model model = load(cuda_bundle_of({cuda_add_sample()}).build(), &load_options);
  struct Counts {
    ht_model* model;
    int live = 0;
    size_t alignment = 0;
  } counts{model.get()};
  ht_session_options options = ht_session_options_default();
  options.allocator.user = &counts;
  options.allocator.allocate = [](void* user, size_t nbytes, size_t alignment) -> void* {
    auto* c = static_cast<Counts*>(user);
    void* memory = nullptr;
    if (ht_model_allocate(c->model, nbytes, &memory) != nullptr) return nullptr;
    ++c->live;
    c->alignment = alignment;
    return memory;
  };
  options.allocator.release = [](void* user, void* memory, size_t) {
    auto* c = static_cast<Counts*>(user);
    --c->live;
    ht_model_deallocate(c->model, memory);
  };
  options.max_nbytes = 2048;
  const float x[600] = {};
  {
    auto session = model.new_session(&options);
    REQUIRE(session.ok());
    CHECK(session->run({Tensor::of(x, {2, 3}), Tensor::of(x, {2, 3})}).ok());
    CHECK(counts.live == 5);  // arena, workspace, two inputs, an output
    CHECK(counts.alignment == 256);
    const auto refused = session->run({Tensor::of(x, {200, 3}), Tensor::of(x, {200, 3})});
    CHECK(refused.status().code() == HT_OUT_OF_MEMORY);
  }
  CHECK(counts.live == 0);
}
