#include "server/core/protocol.h"

#include "server/core/text.h"

namespace hardtack::serve {

const ServerInfo& server_info() {
  static const ServerInfo info{
      "hardtack",
      ht_version(),
      {"binary_tensor_data", "model_configuration", "model_repository", "model_repository(unload_dependents)",
       "schedule_policy", "sequence", "statistics", "system_shared_memory"}};
  return info;
}

std::string input_named(std::string_view name) { return "input \"" + cut(name, 200) + "\""; }

std::string output_named(std::string_view name) { return "output \"" + cut(name, 200) + "\""; }

Outcome<std::uint64_t> size_parameter(const std::string& which, const char* name, const Parameter& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number != nullptr && *number >= 0) return static_cast<std::uint64_t>(*number);
  return Error{Code::kInvalid,
               "parameter \"" + std::string(name) + "\" of " + which + " must be a whole number, not negative"};
}

Failure check_load_parameter(std::string_view name) {
  if (name != "config" && name.rfind("file:", 0) != 0) return std::nullopt;
  return Error{Code::kUnsupported, "parameter \"" + cut(name, 200) +
                                       "\" is not supported: this server loads the bundle that lies in its "
                                       "repository, as it is"};
}

Failure check_output_parameter(const std::string& output, std::string_view name) {
  if (name != "classification") return std::nullopt;
  return Error{Code::kUnsupported, output_named(output) +
                                       ": classification is not done by this server; ask for the output itself and "
                                       "sort it in the client"};
}

Outcome<ht_dtype> input_dtype(const std::string& input, std::string_view datatype) {
  if (datatype == "BYTES") {
    return Error{Code::kUnsupported,
                 input_named(input) +
                     " has datatype BYTES; models here take numbers only, so encode text in the client (a tokenizer)"};
  }
  if (const auto dtype = dtype_from_protocol(datatype)) return *dtype;
  return Error{Code::kInvalid,
               input_named(input) + " has datatype \"" + cut(datatype, 32) +
                   "\"; the protocol has BOOL, UINT8, UINT16, UINT32, INT8, INT16, INT32, INT64, FP16, BF16, FP32 and "
                   "FP64"};
}

Outcome<Input> make_input(std::string name, ht_dtype dtype, Shape shape, const Placement& place) {
  Input input;
  input.name = std::move(name);
  input.dtype = dtype;
  input.shape = std::move(shape);
  input.nbytes = place.nbytes;
  if (!place.region.empty()) {
    if (Failure wrong = check_nbytes(input)) return *wrong;
  }
  return input;
}

Failure check_nbytes(const Input& input) {
  const auto count = numel(input.shape);
  if (!count) {
    return Error{Code::kInvalid, input_named(input.name) + " has shape " + to_text(input.shape) +
                                     "; sizes must not be negative and their product must fit"};
  }
  const std::size_t wanted = static_cast<std::size_t>(*count) * itemsize(input.dtype);
  if (wanted == input.nbytes) return std::nullopt;
  return Error{Code::kInvalid, input_named(input.name) + " has " + std::to_string(input.nbytes) +
                                   " bytes of data; shape " + to_text(input.shape) + " of " +
                                   protocol_name(input.dtype) + " takes " + std::to_string(wanted)};
}

}  // namespace hardtack::serve
