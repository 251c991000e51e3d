// hardtack-rt: .npy files, size expressions, and the command from the outside.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "../tools/expression.h"
#include "../tools/npy.h"
#include "support/samples.h"

using namespace hardtack::testing;
using hardtack::tools::Array;

namespace {

struct Finished {
  int exit_status = -1;
  std::string output;  // both streams
};

Finished rt(const std::string& arguments) {
  Finished result;
  std::FILE* pipe = ::popen((std::string(HARDTACK_RT) + " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char chunk[4096];
  while (const size_t n = std::fread(chunk, 1, sizeof chunk, pipe)) result.output.append(chunk, n);
  const int status = ::pclose(pipe);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// As numpy.save writes it.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

std::string floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace

TEST_CASE("size texts are evaluated as Python would") {
  int64_t value = 0;
  const std::map<std::string, int64_t> sizes = {{"s0", 7}, {"batch", 2}};
  const std::pair<const char*, int64_t> cases[] = {
      {"3", 3},       {"s0", 7},        {"2*s0 + 1", 15},         {"(s0 - 3)//4", 1},    {"(-1*s0)//2", -4},
      {"-3 + s0", 4}, {"(-1*s0)%4", 1}, {"min(s0, batch, 9)", 2}, {"max(s0, 8) - 1", 7}, {"s0*(batch + 1)", 21}};
  for (const auto& [text, expected] : cases) {
    CHECK_MESSAGE(hardtack::tools::evaluate(text, sizes, &value), text);
    CHECK_MESSAGE(value == expected, text);
  }
  for (const char* text : {"", "s1", "s0 +", "(s0", "s0//0", "s0%-1", "9223372036854775807 + s0", "min()", "1 2"}) {
    CHECK_MESSAGE(!hardtack::tools::evaluate(text, sizes, &value), text);
  }
  CHECK_FALSE(hardtack::tools::evaluate(std::string(100000, '('), sizes, &value));
}

TEST_CASE(".npy files are read as NumPy writes them, and written so") {
  std::string problem;
  Array array;
  const ht_dtype f32 = {2, 32, 1}, bf16 = {4, 16, 1};
  const TemporaryFile good(npy("<f4", "2, 3", floats({1, 2, 3, 4, 5, 6})));
  REQUIRE(hardtack::tools::read_npy(good.path(), f32, &array, &problem));
  CHECK(array.shape == std::vector<int64_t>{2, 3});
  CHECK(array.bytes.size() == 24);

  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 2}, strides[] = {3, 1};
  const ht_tensor tensor = {data.data(), {1, 0}, 2, f32, shape, strides, 4};
  const TemporaryFile written("");
  REQUIRE(hardtack::tools::write_npy(written.path(), tensor, &problem));
  std::ifstream file(written.path(), std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str() == npy("<f4", "2,2,", floats({2, 3, 5, 6})));

  const TemporaryFile bits(npy("<u2", "1,", "ab"));
  Array as_bits;
  CHECK(hardtack::tools::read_npy(bits.path(), bf16, &as_bits, &problem));
  CHECK(as_bits.dtype.code == 4);
  CHECK(hardtack::tools::read_npy(bits.path(), f32, &as_bits, &problem));
  CHECK(as_bits.dtype.code == 1);
  const TemporaryFile byte(npy("|u1", "1,", "a"));
  CHECK(hardtack::tools::read_npy(byte.path(), {12, 8, 1}, &as_bits, &problem));
  CHECK(as_bits.dtype.code == 12);
  CHECK(hardtack::tools::read_npy(byte.path(), f32, &as_bits, &problem));
  CHECK(as_bits.dtype.code == 1);
  const auto error_of = [&](const std::string& bytes) {
    const TemporaryFile broken(bytes);
    Array ignored;
    CHECK_FALSE(hardtack::tools::read_npy(broken.path(), f32, &ignored, &problem));
    return problem.substr(broken.path().size());
  };
  CHECK(error_of("hello") == ": not an .npy file of version 1.0 or 2.0");
  CHECK(error_of(npy("<u8", "1,", "abcdefgh")) == ": dtype '<u8' is not one that Hardtack runs on");
  CHECK(error_of(npy(">f4", "1,", "abcd")) == ": dtype '>f4' is not one that Hardtack runs on");
  CHECK(error_of(npy("<f4", "2,", "abcd")) == ": holds 4 bytes of data, its shape says 8");
  CHECK(error_of(npy("<f4", "9999999999999999999,", "")) == ": bad shape (9999999999999999999,");
}

TEST_CASE("the command teaches, and tells wrong use from bad bundles") {
  CHECK(rt("--help").exit_status == 0);
  CHECK(contains(rt("--help").output, "Exit status: 0 good, 1 bad bundle or result, 2 wrong use."));
  CHECK(contains(rt("run --help").output, "--input NAME=FILE.npy"));
  CHECK(rt("").exit_status == 2);
  CHECK(rt("dance").exit_status == 2);
  CHECK(contains(rt("dance").output, "unknown command \"dance\""));
  CHECK(contains(rt("run").output, "expected one bundle"));
  CHECK(contains(rt("run x.pkg --speed").output, "unknown option --speed"));
  CHECK(
      contains(rt("run x.pkg --threads many").output, "--threads is \"many\", expected a whole number from 1 to 1024"));
  CHECK(rt("verify /nonexistent.pkg").exit_status == 1);
  CHECK(contains(rt("verify x.pkg --key 123").output, "expected 64 hexadecimal digits"));
}

TEST_CASE("verify takes a file of trusted keys, and the model that is meant") {
  const TemporaryFile bundle(bundle_of({add_sample()}).build());
  const TemporaryFile keys(std::string(64, 'a') + "\nminilm 7\n");
  const Finished refused = rt("verify " + bundle.path() + " --signed-model minilm --trusted-keys " + keys.path());
  CHECK(refused.exit_status == 1);
  CHECK(contains(refused.output, "a trusted signature is required, but the bundle is not signed"));
  keys.write("minilm\n");
  CHECK(contains(rt("verify " + bundle.path() + " --trusted-keys " + keys.path()).output,
                 keys.path() + ": line 1: expected a public key"));
  const Finished alone = rt("verify " + bundle.path() + " --signed-model minilm");
  CHECK(alone.exit_status == 2);
  CHECK(contains(alone.output, "give --key or --trusted-keys, too"));
}

TEST_CASE("weights outside of the bundle are named with --weights") {
  BundleText text = bundle_of({gather_sample()});
  text.external = "nowhere.safetensors";
  const TemporaryFile bundle(text.build());
  const TemporaryFile weights(write_safetensors(text.constants));
  CHECK(contains(rt("inspect " + bundle.path()).output, "outside, in nowhere.safetensors"));
  for (const char* command : {"verify ", "bench --seconds 1 "}) {
    const Finished refused = rt(command + bundle.path());
    CHECK(refused.exit_status == 1);
    CHECK(contains(refused.output, "nowhere.safetensors: No such file or directory"));
    const Finished done = rt(command + bundle.path() + " --weights " + weights.path());
    CHECK_MESSAGE(done.exit_status == 0, done.output);
  }
}

TEST_CASE("inspect, verify, run and bench on a bundle") {
  const TemporaryFile bundle(bundle_of({add_sample(), gather_sample()}).build());
  const TemporaryFile x(npy("<f4", "2, 3", floats({1, 2, 3, 4, 5, 6})));
  const Finished inspected = rt("inspect --constants " + bundle.path());
  CHECK(inspected.exit_status == 0);
  CHECK(contains(inspected.output, "f32 [s0, 3]"));
  CHECK(contains(inspected.output, "0 to 1000"));
  CHECK(contains(inspected.output, "table"));
  CHECK(contains(rt("inspect --json " + bundle.path()).output, "\"runnable_targets\":[\"cpu:test\"]"));
  CHECK(contains(rt("verify " + bundle.path()).output, "4 instructions proved") == false);
  CHECK(contains(rt("verify " + bundle.path()).output, "3 instructions proved"));
  CHECK(contains(rt("verify --json " + bundle.path()).output, "\"ok\":true"));

  CHECK(contains(rt("run " + bundle.path()).output, "name one with --entry: forward, gather"));
  CHECK(contains(rt("run --entry forward " + bundle.path() + " -i x=" + x.path()).output,
                 "input \"y\" (f32 [s0, 3]) is missing: give -i y=FILE.npy"));
  const std::string folder = bundle.path() + ".out";
  const Finished ran =
      rt("run --entry forward " + bundle.path() + " -i x=" + x.path() + " -i y=" + x.path() + " -o " + folder);
  CHECK_MESSAGE(ran.exit_status == 0, ran.output);
  Array z;
  std::string problem;
  REQUIRE(hardtack::tools::read_npy(folder + "/z.npy", {2, 32, 1}, &z, &problem));
  CHECK(z.shape == std::vector<int64_t>{2, 3});
  CHECK(reinterpret_cast<const float*>(z.bytes.data())[5] == 18);
  std::remove((folder + "/z.npy").c_str());
  std::remove(folder.c_str());

  const TemporaryFile wide(npy("<f4", "2, 4", floats({1, 2, 3, 4, 5, 6, 7, 8})));
  const Finished refused = rt("run --entry forward " + bundle.path() + " -i x=" + wide.path() + " -i y=" + x.path());
  CHECK(refused.exit_status == 1);
  CHECK(contains(refused.output, "input \"x\" (0 of entry \"forward\"): dimension 1 is 4, expected 3"));

  const Finished bench = rt("bench --entry forward --size s0=5 --seconds 1 --steps --json " + bundle.path());
  CHECK(bench.exit_status == 0);
  CHECK(contains(bench.output, "\"sizes\":{\"s0\":5}"));
  CHECK(contains(bench.output, "\"kernel\":\"add_f32\",\"launches\":2"));
}
