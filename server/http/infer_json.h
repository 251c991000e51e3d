// The JSON part of an inference request, read without building a tree: numbers of tensors go straight into typed memory.
#ifndef HARDTACK_SERVER_HTTP_INFER_JSON_H
#define HARDTACK_SERVER_HTTP_INFER_JSON_H

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/core/request.h"

namespace hardtack::serve::http {

using Parameters = std::map<std::string, Parameter>;

/// The elements of a "data" member: whole numbers until the first fraction, doubles from then on.
struct JsonData {
  bool present = false;
  std::vector<std::int64_t> whole;
  std::vector<double> real;
  bool is_real = false;
  bool has_bool = false;
  bool has_number = false;
  bool too_big = false;  // a whole number beyond 64 bits with sign
  Shape nesting;         // sizes of nested lists, outermost first; [n] when flat
  bool ragged = false;

  std::size_t size() const { return is_real ? real.size() : whole.size(); }
};

struct JsonInput {
  std::string name, datatype;
  bool has_shape = false;
  Shape shape;
  Parameters parameters;
  JsonData data;
};

struct JsonOutput {
  std::string name;
  Parameters parameters;
};

struct InferJson {
  Share share;  // of everything here, but for what is small
  std::string id;
  Parameters parameters;
  bool has_inputs = false;
  std::vector<JsonInput> inputs;
  std::vector<JsonOutput> outputs;
};

/// kInvalid with the place for text that is no JSON or not of the protocol's form; kNoMemory. Members that the protocol
/// does not have are skipped.
Outcome<InferJson> read_infer_json(std::string_view text, Budget& budget);

/// The data as row-major elements of `dtype`; the memory and its size in bytes. kInvalid for numbers that the type does
/// not hold, kUnsupported for the half types, which JSON does not carry; kNoMemory.
struct Elements {
  std::shared_ptr<std::byte> memory;
  std::size_t nbytes = 0;
};
Outcome<Elements> to_elements(const JsonInput& input, ht_dtype dtype, Budget& budget);

/// Appends `[1,2,3]`; `share` counts the text. kUnsupported for values that JSON does not have (NaN, infinities) and for
/// the half types; kNoMemory.
Failure append_elements(std::string& out, const Output& output, Share& share);

/// That JSON has elements of the output's type.
Failure check_json_type(const Output& output);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_INFER_JSON_H
