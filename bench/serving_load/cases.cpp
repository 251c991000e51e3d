// The file of cases, little-endian: the number of cases (u64), and for each
//   nbytes and bytes of the request; offset of the id; number of inputs, and for each: type code, bits, number of
//   dimensions, the dimensions, offset in the request; number of expected elements and the elements (f32); tolerance (f64)
// Whole numbers without a type here are u64.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "load.h"

namespace load {

namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  const char* take(std::size_t nbytes) {
    if (nbytes > bytes_.size() - at_) die(path_ + " is no file of cases, or is cut off");
    at_ += nbytes;
    return bytes_.data() + (at_ - nbytes);
  }

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }

  std::size_t size() { return number<std::uint64_t>(); }

 private:
  std::string path_, bytes_;
  std::size_t at_ = 0;
};

Case read_case(Reader& reader) {
  Case one;
  const std::size_t nbytes = reader.size();
  one.request.assign(reader.take(nbytes), nbytes);
  one.id_offset = reader.size();
  if (one.id_offset + kIdNbytes > nbytes) die("the id of a case lies behind its request");
  one.inputs.resize(reader.size());
  for (Input& input : one.inputs) {
    input.dtype.code = static_cast<decltype(input.dtype.code)>(reader.size());
    input.dtype.bits = static_cast<decltype(input.dtype.bits)>(reader.size());
    input.dtype.lanes = 1;
    input.shape.resize(reader.size());
    for (std::int64_t& size : input.shape) size = static_cast<std::int64_t>(reader.size());
    input.offset = reader.size();
  }
  one.expected.resize(reader.size());
  const std::size_t expected_nbytes = one.expected.size() * sizeof(float);
  std::memcpy(one.expected.data(), reader.take(expected_nbytes), expected_nbytes);
  one.tolerance = static_cast<float>(reader.number<double>());
  return one;
}

}  // namespace

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "serving_load: %s\n", why.c_str());
  std::exit(1);
}

std::vector<Case> read_cases(const std::string& path) {
  Reader reader(path);
  std::vector<Case> cases(reader.size());
  for (Case& one : cases) one = read_case(reader);
  if (cases.empty()) die(path + " has no case");
  return cases;
}

std::string check(const Case& one, std::string_view output) {
  if (output.size() != one.expected.size() * sizeof(float)) {
    return "an answer of " + std::to_string(output.size()) + " bytes for " + std::to_string(one.expected.size()) +
           " elements";
  }
  for (std::size_t i = 0; i < one.expected.size(); ++i) {
    float value = 0;
    std::memcpy(&value, output.data() + i * sizeof value, sizeof value);
    const float wanted = one.expected[i];
    if (std::fabs(value - wanted) <= one.tolerance * (1 + std::fabs(wanted))) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(value) + ", expected " + std::to_string(wanted);
  }
  return "";
}

}  // namespace load
