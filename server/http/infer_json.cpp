#include "server/http/infer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/core/protocol.h"
#include "server/core/text.h"
#include "server/http/json_text.h"

namespace hardtack::serve::http {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 64;        // of lists and objects
constexpr std::size_t kMostTensors = 4096;  // inputs or outputs
constexpr std::size_t kMostParameters = 256;
constexpr std::size_t kMostDims = 64;
constexpr std::size_t kParameterNbytes = 192;  // of a node of a map
constexpr std::size_t kSmallText = 64;         // counted with what holds it

enum class Where {
  kNothing,
  kRoot,
  kRootParameters,
  kInputs,
  kInput,
  kShape,
  kInputParameters,
  kData,
  kOutputs,
  kOutput,
  kOutputParameters,
  kSkipped,
};

// Receives the parser's events; `where_` is what the innermost list or object is.
class Reader {
 public:
  explicit Reader(Budget& budget) {
    message.share = Share(budget);
    stack_.reserve(8);
  }

  InferJson message;
  std::string problem;
  std::size_t lacking = 0;  // bytes, where there was no memory for them

  // "data": null is no data: so some clients say that the input is empty and in the binary form.
  bool null() { return (in(Where::kInput) && key_ == "data") || scalar_of_no_use("null"); }

  bool boolean(bool value) {
    if (in(Where::kData) || bare_data()) return data_bool(value);
    if (Parameters* parameters = here()) return set(*parameters, value);
    return scalar_of_no_use("true or false");
  }

  bool number_integer(std::int64_t value) {
    if (in(Where::kData) || bare_data()) return data_whole(value);
    if (in(Where::kShape)) return shape_size(value);
    if (Parameters* parameters = here()) return set(*parameters, value);
    if (in(Where::kRoot) && key_ == "id") message.id = std::to_string(value);
    return (in(Where::kRoot) && key_ == "id") || scalar_of_no_use("a number");
  }

  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(INT64_MAX)) return number_integer(static_cast<std::int64_t>(value));
    if (!in(Where::kData) && !bare_data()) return number_float(static_cast<double>(value), "");
    message.inputs.back().data.too_big = true;
    return data_real(static_cast<double>(value));
  }

  bool number_float(double value, const std::string&) {
    if (in(Where::kData) || bare_data()) return data_real(value);
    if (in(Where::kShape)) return fail("a shape has a size that is no whole number");
    if (Parameters* parameters = here()) return set(*parameters, value);
    return scalar_of_no_use("a number");
  }

  bool string(std::string& value) {
    if (in(Where::kData)) return fail(of_input() + "has text in its data; models here take numbers only");
    if (Parameters* parameters = here()) return count(value.capacity()) && set(*parameters, std::move(value));
    if (in(Where::kRoot) && key_ == "id") return keep(message.id, value);
    if (in(Where::kInput) && key_ == "name") return keep(message.inputs.back().name, value);
    if (in(Where::kInput) && key_ == "datatype") return keep(message.inputs.back().datatype, value);
    if (in(Where::kOutput) && key_ == "name") return keep(message.outputs.back().name, value);
    return scalar_of_no_use("text");
  }

  bool binary(Json::binary_t&) { return fail("it has binary JSON"); }

  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) {
    switch (where()) {
      case Where::kNothing: return enter(Where::kRoot);
      case Where::kRoot:
        if (is_list_member(key_)) return fail("\"" + key_ + "\" must be a list");
        return enter(key_ == "parameters" ? Where::kRootParameters : Where::kSkipped);
      case Where::kInputs:
        if (message.inputs.size() >= kMostTensors) return fail("there are too many inputs");
        message.inputs.emplace_back();
        return count(2 * sizeof(JsonInput)) && enter(Where::kInput);
      case Where::kOutputs:
        if (message.outputs.size() >= kMostTensors) return fail("there are too many outputs");
        message.outputs.emplace_back();
        return count(2 * sizeof(JsonOutput)) && enter(Where::kOutput);
      case Where::kInput: return object_in(Where::kInputParameters);
      case Where::kOutput: return object_in(Where::kOutputParameters);
      case Where::kShape: return fail("a shape must be a list of whole numbers");
      case Where::kData: return fail(of_input() + "has an object in its data");
      default: return enter(Where::kSkipped);
    }
  }

  bool end_object() { return leave(); }

  bool start_array(std::size_t) {
    switch (where()) {
      case Where::kNothing: return fail("the request must be an object");
      case Where::kRoot:
        if (key_ == "parameters") return fail("\"parameters\" must be an object");
        if (key_ == "inputs") return message.has_inputs = true, message.inputs.clear(), enter(Where::kInputs);
        if (key_ == "outputs") return message.outputs.clear(), enter(Where::kOutputs);
        return enter(Where::kSkipped);
      case Where::kInput:
        if (key_ == "shape") {
          message.inputs.back().has_shape = true;
          message.inputs.back().shape.clear();
          return enter(Where::kShape);
        }
        if (key_ == "data") {
          message.inputs.back().data = JsonData{};
          message.inputs.back().data.present = true;
          lengths_.assign(1, 0);
          leaf_depth_ = 0;
          return enter(Where::kData);
        }
        if (key_ == "parameters") return fail(of_input() + "has \"parameters\" that are no object");
        return key_ == "name" || key_ == "datatype" ? scalar_of_no_use("a list") : enter(Where::kSkipped);
      case Where::kData:
        if (leaf_depth_ > 0 && lengths_.size() >= leaf_depth_) message.inputs.back().data.ragged = true;
        ++lengths_.back();
        lengths_.push_back(0);
        return enter(Where::kData);
      case Where::kInputs:
      case Where::kOutputs: return fail("inputs and outputs must be objects");
      case Where::kShape: return fail("a shape must be a list of whole numbers");
      default: return enter(Where::kSkipped);
    }
  }

  bool end_array() {
    if (in(Where::kData)) close_data_list();
    return leave();
  }

  bool parse_error(std::size_t position, const std::string& token, const Json::exception& error) {
    std::string text =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: why; last read"
    const std::size_t colon = text.find(": ");
    if (colon != std::string::npos) text = text.substr(colon + 2);
    if (!is_utf8(text)) text = text.substr(0, text.find("; last read"));
    (void)token;
    problem = "the request is no JSON: at byte " + std::to_string(position) + ": " + cut(text, 200);
    return false;
  }

 private:
  Where where() const { return stack_.empty() ? Where::kNothing : stack_.back(); }
  bool in(Where place) const { return where() == place; }

  // Counts what is kept beside the text: small things take many times their length in it.
  bool count(std::size_t nbytes) {
    if (message.share.grow(nbytes)) return true;
    lacking = message.share.nbytes() + nbytes;
    return false;
  }

  // The request copies it.
  bool keep(std::string& to, std::string& value) {
    to = std::move(value);
    return to.capacity() <= kSmallText || count(2 * to.capacity());
  }

  template <typename T>
  bool push(std::vector<T>& list, T value) {
    if (list.size() == list.capacity()) {
      const std::size_t wanted = std::max<std::size_t>(16, 2 * list.capacity());
      if (!count(wanted * sizeof(T))) return false;
      list.reserve(wanted);
    }
    list.push_back(value);
    return true;
  }

  bool fail(std::string why) {
    problem = std::move(why);
    return false;
  }

  bool enter(Where place) {
    if (stack_.size() >= kDeepest)
      return fail("the request nests lists and objects deeper than " + std::to_string(kDeepest));
    stack_.push_back(place);
    return true;
  }

  bool leave() {
    stack_.pop_back();
    key_.clear();
    return true;
  }

  static bool is_list_member(const std::string& key) { return key == "inputs" || key == "outputs"; }

  bool object_in(Where parameters) {
    if (key_ == "parameters") return enter(parameters);
    const bool ours = key_ == "name" || key_ == "datatype" || key_ == "shape" || key_ == "data";
    return ours ? scalar_of_no_use("an object") : enter(Where::kSkipped);
  }

  std::string of_input() const { return input_named(message.inputs.back().name) + " "; }

  Parameters* here() {
    if (in(Where::kRootParameters)) return &message.parameters;
    if (in(Where::kInputParameters)) return &message.inputs.back().parameters;
    if (in(Where::kOutputParameters)) return &message.outputs.back().parameters;
    return nullptr;
  }

  template <typename T>
  bool set(Parameters& parameters, T value) {
    if (parameters.size() >= kMostParameters) return fail("there are too many parameters");
    parameters[key_] = Parameter(std::move(value));
    return count(kParameterNbytes + key_.capacity());
  }

  // A scalar where the protocol has something else is refused; members that the protocol does not have are skipped.
  bool scalar_of_no_use(const char* what) {
    const auto wrong = [&](const char* wanted) { return fail("\"" + key_ + "\" must be " + wanted + ", not " + what); };
    switch (where()) {
      case Where::kNothing: return fail("the request must be an object");
      case Where::kRoot:
        if (is_list_member(key_)) return wrong("a list");
        if (key_ == "parameters") return wrong("an object");
        return key_ == "id" && what != std::string("null") ? wrong("text") : true;
      case Where::kInputs:
      case Where::kOutputs: return fail("inputs and outputs must be objects");
      case Where::kInput:
      case Where::kOutput:
        if (key_ == "name" || key_ == "datatype") return wrong("text");
        if (key_ == "shape" || key_ == "data") return wrong("a list");
        return key_ == "parameters" && what != std::string("null") ? wrong("an object") : true;
      case Where::kShape: return fail("a shape must be a list of whole numbers");
      case Where::kData: return fail(of_input() + "has " + what + " in its data");
      default: return true;
    }
  }

  bool shape_size(std::int64_t value) {
    Shape& shape = message.inputs.back().shape;
    if (shape.size() >= kMostDims) return fail("a shape has more than " + std::to_string(kMostDims) + " sizes");
    shape.push_back(value);
    return true;
  }

  // "data": 5 for a tensor of rank 0: a list of one.
  bool bare_data() {
    if (!in(Where::kInput) || key_ != "data") return false;
    JsonData& data = message.inputs.back().data;
    data = JsonData{};
    data.present = true;
    data.nesting = {1};
    lengths_.assign(1, 0);
    leaf_depth_ = 0;
    return true;
  }

  void leaf() {
    ++lengths_.back();
    if (leaf_depth_ == 0) leaf_depth_ = lengths_.size();
    if (leaf_depth_ != lengths_.size()) message.inputs.back().data.ragged = true;
  }

  bool data_bool(bool value) {
    JsonData& data = message.inputs.back().data;
    leaf();
    data.has_bool = true;
    return data.is_real ? push(data.real, value ? 1.0 : 0.0) : push(data.whole, std::int64_t{value});
  }

  bool data_whole(std::int64_t value) {
    JsonData& data = message.inputs.back().data;
    leaf();
    data.has_number = true;
    return data.is_real ? push(data.real, static_cast<double>(value)) : push(data.whole, value);
  }

  bool data_real(double value) {
    JsonData& data = message.inputs.back().data;
    leaf();
    data.has_number = true;
    if (!data.is_real) {
      if (!count(data.whole.size() * sizeof(double))) return false;
      data.real.assign(data.whole.begin(), data.whole.end());
      data.whole = {};
      data.is_real = true;
    }
    return push(data.real, value);
  }

  // All lists of one depth must have one length.
  void close_data_list() {
    JsonData& data = message.inputs.back().data;
    const std::size_t depth = lengths_.size() - 1;
    if (data.nesting.size() <= depth) data.nesting.resize(depth + 1, -1);
    std::int64_t& length = data.nesting[depth];
    if (length >= 0 && length != lengths_.back()) data.ragged = true;
    length = lengths_.back();
    lengths_.pop_back();
  }

  std::vector<Where> stack_;
  std::string key_;
  std::vector<std::int64_t> lengths_;  // of the open lists of data
  std::size_t leaf_depth_ = 0;         // how many lists are open around each number
};

}  // namespace

Outcome<InferJson> read_infer_json(std::string_view text, Budget& budget) {
  Share parser(budget);
  const std::size_t parser_takes = parser_nbytes(text);
  if (!parser.grow(parser_takes)) return budget.refusal("the longest string or number of the JSON", parser_takes);
  Reader reader(budget);
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return std::move(reader.message);
  if (reader.lacking > 0) return budget.refusal("the numbers and names of the JSON", reader.lacking);
  return Error{Code::kInvalid, reader.problem};
}

}  // namespace hardtack::serve::http
