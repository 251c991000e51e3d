// What launches access: declared calls, inside the values, everything written before it is read.
#include <doctest/doctest.h>

#include "support/samples.h"

using namespace hardtack::testing;
using hardtack::Model;
using hardtack::Session;
using hardtack::Tensor;

namespace {

struct Part {
  int64_t offset;
  std::vector<int64_t> sizes, strides;
};

std::string load_message(const Sample& sample) {
  const Outcome o = load_outcome(bundle_of({sample}).build());
  CHECK(o.code == (o.message.empty() ? HT_OK : HT_BAD_BUNDLE));
  const std::string prefix = "plan of \"" + sample.entry.name + "\" for cpu:test: ";
  const size_t at = o.message.find(prefix);
  return at == std::string::npos ? o.message : o.message.substr(at + prefix.size());
}

// An output f32 [3, 4] and a kernel whose call number k, told by its int, fills part k.
struct Parts {
  Sample s;
  int y = 0;
  std::vector<std::string> launches;

  explicit Parts(const std::vector<Part>& parts) {
    PlanText& p = s.plan;
    y = p.output("y", "f32", {p.n(3), p.n(4)}, {p.n(4), p.n(1)});
    s.entry.outputs = {manifest_tensor("f32", "y", {"3", "4"}, {"4", "1"})};
    std::vector<std::string> calls;
    for (size_t k = 0; k < parts.size(); ++k) {
      std::vector<int> sizes, strides;
      for (const int64_t n : parts[k].sizes) sizes.push_back(p.n(n));
      for (const int64_t n : parts[k].strides) strides.push_back(p.n(n));
      const int number = p.n(static_cast<int64_t>(k));
      calls.push_back("{\"accesses\":[[[\"fill\"," + std::to_string(p.n(parts[k].offset)) + "," + numbers(sizes) + "," +
                      numbers(strides) + "]]],\"ints\":" + numbers({number}) +
                      ",\"per_worker\":" + std::to_string(p.n(0)) + ",\"shared\":" + std::to_string(p.n(0)) + "}");
    }
    p.kernels = {"{\"calls\":" + join(calls) +
                 ",\"name\":\"scale_f32\",\"params\":[[\"buffer\",\"f32\",\"write\"],[\"int\"]]}"};
    const std::string record = p.kernels[0];
    for (size_t k = 0; k < parts.size(); ++k) launches.push_back(p.launch(0, {y}, {p.n(static_cast<int64_t>(k))}));
    p.kernels = {record};
    p.body = launches;
  }
};

std::string check(const std::vector<Part>& parts) { return load_message(Parts(parts).s); }

}  // namespace

TEST_CASE("parts that make up the whole output, in any order and form") {
  CHECK(check({{0, {12}, {1}}}) == "");
  CHECK(check({{0, {3, 4}, {4, 1}}}) == "");
  CHECK(check({{11, {12}, {-1}}}) == "");
  CHECK(check({{0, {3, 1}, {4, 1}}, {1, {3, 3}, {4, 1}}}) == "");
  CHECK(check({{1, {3, 3}, {4, 1}}, {0, {3}, {4}}}) == "");
  CHECK(check({{8, {4}, {1}}, {0, {8}, {1}}}) == "");
  CHECK(check({{0, {6}, {2}}, {1, {6}, {2}}}) == "");
  CHECK(check({{2, {3, 2}, {4, 1}}, {0, {3}, {4}}, {1, {3}, {4}}}) == "");
  std::vector<Part> elements;
  for (int64_t i = 0; i < 12; ++i) elements.push_back({i * 5 % 12, {1, 1}, {77, 1}});
  CHECK(check(elements) == "");
  CHECK(check({{0, {0}, {1}}, {0, {12}, {1}}}) == "");
  CHECK(check({{0, {3, 1}, {4, 1}}, {3, {3}, {4}}, {1, {3, 2}, {4, 1}}}) == "");
  CHECK(check({{0, {4}, {1}}, {8, {4}, {1}}, {4, {4}, {1}}}) == "");
  CHECK(check({{0, {12, 1}, {1, INT64_MIN}}}) == "");
  CHECK(check({{0, {7, 6}, {1, 1}}}) == "");
  CHECK(check({{0, {3, 3, 2}, {4, 1, 1}}}) == "");
  CHECK(check({{0, {2, 2}, {1, 1}}, {3, {9}, {1}}}) == "");
}

TEST_CASE("parts that leave an element, or go too far") {
  const std::string not_whole = "output \"y\" is not written as a whole";
  CHECK(check({{0, {11}, {1}}}) == not_whole);
  CHECK(check({{1, {11}, {1}}}) == not_whole);
  CHECK(check({{0, {6}, {1}}, {0, {6}, {1}}}) == not_whole);
  CHECK(check({{0, {6}, {2}}, {1, {5}, {2}}}) == not_whole);
  CHECK(check({{0, {3, 2}, {4, 1}}, {1, {3, 2}, {4, 1}}}) == not_whole);
  CHECK(check({{0, {12}, {0}}}) == not_whole);
  CHECK(check({{0, {0}, {1}}}) == not_whole);
  CHECK(check({{5, {0, 7}, {1, 1}}}) == not_whole);
  CHECK(check({{0, {12, 12}, {0, 0}}}) == not_whole);
  CHECK(check({{0, {13}, {1}}}) == "kernel scale_f32: accesses elements 0 to 12 of \"y\", which has 48 bytes");
  CHECK(check({{0, {12}, {-1}}}) == "kernel scale_f32: accesses elements -11 to 0 of \"y\", which has 48 bytes");
  CHECK(check({{0, {3, 4}, {5, 1}}}) == "kernel scale_f32: accesses elements 0 to 13 of \"y\", which has 48 bytes");
  CHECK(check({{INT64_MAX, {2}, {INT64_MAX}}}).find("kernel scale_f32: accesses elements ") == 0);
  CHECK(check({{0, {INT64_MAX}, {INT64_MIN}}}).find("kernel scale_f32: accesses elements ") == 0);
  CHECK(check({{0, {-1}, {1}}}) == "kernel scale_f32: an access of \"y\" has the size -1");
}

TEST_CASE("a plan cannot make its proof long") {
  Parts parts({{0, {12}, {1}}});
  PlanText& p = parts.s.plan;
  const size_t start = p.kernels[0].find("[\"fill\"");
  const std::string fill = p.kernels[0].substr(start, p.kernels[0].find("]]]", start) + 2 - start);
  std::string many = fill;
  for (int i = 0; i < 4096; ++i) many += "," + fill;
  p.kernels[0] = replaced(p.kernels[0], fill, many);
  const std::string launch = p.body[0];
  CHECK(load_message(parts.s) == "");
  for (int i = 0; i < 4096; ++i) p.body.push_back(launch);
  CHECK(load_message(parts.s) == "kernel scale_f32: its accesses are too many to be proved");
}

TEST_CASE("what a branch wrote is undone part by part") {
  Parts parts({{0, {3}, {1}}, {3, {3}, {1}}, {6, {3}, {1}}, {9, {3}, {1}}, {0, {12}, {1}}});
  PlanText& p = parts.s.plan;
  const int flag = p.input("flag", "bool", {}, {});
  parts.s.entry.inputs = {manifest_tensor("bool", "flag", {}, {})};
  const std::vector<std::string>& l = parts.launches;
  const auto message = [&](const std::vector<std::string>& body) {
    p.body = body;
    return load_message(parts.s);
  };
  const std::string not_whole = "output \"y\" is not written as a whole";
  const std::string inner = p.branch(flag, {l[1], l[2], l[3]}, {l[2]});
  CHECK(message({l[0], p.branch(flag, {inner}, {}), l[1], l[2], l[3]}) == "");
  CHECK(message({l[0], p.branch(flag, {l[2], inner, inner}, {l[4]}), l[1], l[2]}) == not_whole);
  CHECK(message({l[0], p.branch(flag, {l[2], inner, l[1], l[3]}, {l[4]})}) == "");
  CHECK(message({l[2], l[0], p.branch(flag, {l[1]}, {l[3], l[1], l[1]}), l[3]}) == not_whole);
  CHECK(message({l[2], l[0], p.branch(flag, {l[1]}, {l[3], l[1], l[1]}), l[3], l[1]}) == "");
}

TEST_CASE("what one branch leaves out is not written behind the if, what both write is") {
  for (const bool both : {false, true}) {
    Parts parts({{0, {6}, {1}}, {6, {6}, {1}}});
    PlanText& p = parts.s.plan;
    const int flag = p.input("flag", "bool", {}, {});
    parts.s.entry.inputs = {manifest_tensor("bool", "flag", {}, {})};
    const std::vector<std::string>& halves = parts.launches;
    p.body = {halves[0], p.branch(flag, {halves[1]}, {both ? p.fill(parts.y, 0) : halves[0]})};
    CHECK(load_message(parts.s) == (both ? "" : "output \"y\" is not written as a whole"));
  }
}

TEST_CASE("a launch is a call that its kernel declares") {
  const std::string none = "kernel add_f32: it declares no call with these ints and workspaces";
  const Sample good = add_sample();
  CHECK(load_message(good) == "");
  for (const char* wrong : {"0", "1", "1000000000000"}) {
    Sample s = add_sample();
    const int other = s.plan.n(std::stoll(wrong));
    std::string& launch = s.plan.body[0];
    const size_t at = launch.find("\"ints\":");
    launch = launch.substr(0, at) + "\"ints\":" + numbers({other}) + launch.substr(launch.find(",\"kernel\""));
    CHECK(load_message(s) == none);
  }
  Sample s = sum_rows_sample();
  s.plan.body[0] = replaced(s.plan.body[0], "\"per_worker\":" + std::to_string(s.plan.n(4)),
                            "\"per_worker\":" + std::to_string(s.plan.n(0)));
  CHECK(load_message(s) == "kernel sum_rows_f32: it declares no call with these ints and workspaces");
}

TEST_CASE("accesses of sizes that inputs decide are proved when a shape is bound") {
  const auto run = [](const std::string& op, int64_t number, int64_t rows) -> std::string {
    Sample s = add_sample();
    PlanText& p = s.plan;
    const int numel = p.op("mul", {p.n(3), p.sym(0)});
    const int changed = p.op(op, {numel, p.n(number)});
    std::string& record = p.kernels[0];
    const std::string shape = "[" + std::to_string(numel) + "],[" + std::to_string(p.n(1)) + "]";
    for (size_t at = record.find(shape); at != std::string::npos; at = record.find(shape, at + 1)) {
      record.replace(at, shape.size(), "[" + std::to_string(changed) + "],[" + std::to_string(p.n(1)) + "]");
    }
    const Model model = load(bundle_of({s}).build());
    Session session = session_of(model);
    const std::vector<float> x(static_cast<size_t>(3 * rows));
    auto out = session.run({Tensor::of(x.data(), {rows, 3}), Tensor::of(x.data(), {rows, 3})});
    if (out.ok()) return "";
    CHECK(out.status().code() == HT_BAD_BUNDLE);
    return out.status().message();
  };
  CHECK(run("min", 30, 10) == "");
  CHECK(run("min", 30, 11) == "entry \"forward\" with s0 = 11: value \"t\" is read before all of it is written");
  CHECK(run("add", 1, 5) ==
        "entry \"forward\" with s0 = 5: kernel add_f32: accesses elements 0 to 15 of \"x\", which has 60 bytes");
  CHECK(run("max", 15, 5) == "");
  CHECK(run("max", 15, 4) ==
        "entry \"forward\" with s0 = 4: kernel add_f32: accesses elements 0 to 14 of \"x\", which has 48 bytes");
}
