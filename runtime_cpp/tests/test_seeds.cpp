// The seeds of the fuzz targets, fuzz/corpus: those with a name are bundles of the tests, and stay good ones. With
// HARDTACK_WRITE_SEEDS in the environment they are written anew.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "support/cubin.h"
#include "zip.h"

using namespace hardtack::testing;
namespace rt = hardtack::rt;

namespace {

// y = t = the columns of x put together, first or last ones first: f32 [s0, 3] become [s0, 5].
Sample columns_sample() {
  Sample s;
  PlanText& p = s.plan;
  p.entry = s.entry.name = "columns";
  const int s0 = p.sym(0), one = p.n(1), three = p.n(3), five = p.n(5), zero = p.n(0);
  const int numel = p.op("mul", {five, s0});
  const int x = p.input("x", "f32", {s0, three}, {three, one});
  const int flag = p.input("flag", "bool", {}, {});
  const int y = p.output("y", "f32", {s0, five}, {five, one});
  const int t = p.in_arena("t", "f32", {s0, five}, {five, one}, zero);
  p.arena = p.op("mul", {p.n(64), s0});
  p.symbol("s0", 0, "50", 0, "0");
  const int all = p.op("mul", {three, s0}), last = p.op("add", {all, p.n(-1)});  // from the last element to the first
  const auto call = [&](int number, int from, int width) {
    const std::string input =
        "[[\"touch\"," + std::to_string(last) + "," + numbers({all}) + "," + numbers({p.n(-1)}) + "]]";
    const std::string output =
        "[[\"fill\"," + std::to_string(from) + "," + numbers({s0, width}) + "," + numbers({five, one}) + "]]";
    return "{\"accesses\":[" + input + "," + output + "],\"ints\":" + numbers({number}) +
           ",\"per_worker\":" + std::to_string(zero) + ",\"shared\":" + std::to_string(zero) + "}";
  };
  const int columns = p.kernel("columns", {"r:f32", "w:f32", "int"});
  const std::string first = p.launch(columns, {x, t}, {zero}), second = p.launch(columns, {x, t}, {one});
  p.kernels[0] = "{\"calls\":[" + call(zero, zero, p.n(2)) + "," + call(one, p.n(2), three) +
                 "],\"name\":\"columns\",\"params\":[[\"buffer\",\"f32\",\"read\"],[\"buffer\",\"f32\",\"write\"],"
                 "[\"int\"]]}";
  const int copy = p.kernel("copy_f32", {"r:f32", "w:f32", "int"});
  p.body = {p.branch(flag, {first, second}, {second, first}), p.launch(copy, {t, y}, {numel})};
  s.entry.inputs = {manifest_tensor("f32", "x", {"\"s0\"", "3"}, {"3", "1"}), manifest_tensor("bool", "flag", {}, {})};
  s.entry.outputs = {manifest_tensor("f32", "y", {"\"s0\"", "5"}, {"5", "1"})};
  s.entry.syms = {R"({"hi":50,"lo":0,"name":"s0"})"};
  return s;
}

std::map<std::string, std::string> members_of(const std::string& bytes) {
  const auto source = rt::open_memory(bytes.data(), bytes.size(), nullptr, nullptr);
  std::vector<rt::Member> found;
  std::map<std::string, std::string> members;
  REQUIRE(rt::read_zip(*source, &found).ok());
  for (const rt::Member& member : found) REQUIRE(rt::read_member(*source, member, &members[member.name]).ok());
  return members;
}

// File below fuzz/corpus -> bytes. Bundles with weights are large: two of them are enough.
std::map<std::string, std::string> seeds() {
  std::map<std::string, std::string> files;
  const std::vector<std::pair<std::string, Sample>> samples = {
      {"add", add_sample()},     {"branch", branch_sample()}, {"columns", columns_sample()},
      {"count", count_sample()}, {"cuda", cuda_add_sample()}, {"gather", gather_sample()},
      {"loop", while_sample()},  {"rows", sum_rows_sample()}};
  std::vector<std::pair<std::string, BundleText>> bundles;
  for (const auto& [name, sample] : samples) {
    bundles.emplace_back(name, name == "cuda" ? cuda_bundle_of({sample}) : bundle_of({sample}));
  }
  bundles.emplace_back("host", host_bundle("mine"));
  for (auto& [name, bundle] : bundles) {
    if (name != "cuda") bundle.members["lib/test.so"] = "x";  // no target of these looks into it
    files["bundle/" + name] = bundle.build();
    const auto members = members_of(files["bundle/" + name]);
    for (const auto& [member, bytes] : members) {
      if (member.rfind("plans/", 0) == 0) files["plan/" + name] = members.at("manifest.json") + '\0' + bytes;
      if (member.rfind("weights", 0) == 0) files["weights/" + name] = bytes;
    }
  }
  return files;
}

}  // namespace

TEST_CASE("the seeds of the fuzz targets are the bundles of these tests, and good ones") {
  ht_load_options options = ht_load_options_default();
  options.inspect_only = 1;
  for (const auto& [name, bytes] : seeds()) {
    const std::string path = std::string(HARDTACK_SEEDS) + "/" + name;
    if (name.rfind("bundle/", 0) == 0) CHECK_MESSAGE(load_outcome(bytes, &options).message == "", name);
    if (std::getenv("HARDTACK_WRITE_SEEDS") != nullptr) std::ofstream(path, std::ios::binary) << bytes;
    std::ifstream file(path, std::ios::binary);
    const std::string found((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK_MESSAGE(found == bytes, name,
                  ": write the seeds anew: HARDTACK_WRITE_SEEDS=1 hardtack_tests -tc='the seeds*'");
  }
}
