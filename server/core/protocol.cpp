#include "server/core/protocol.h"

namespace hardtack::serve {

const ServerInfo& server_info() {
  static const ServerInfo info{
      "hardtack",
      ht_version(),
      {"binary_tensor_data", "model_configuration", "model_repository", "model_repository(unload_dependents)",
       "schedule_policy", "sequence", "statistics", "system_shared_memory"}};
  return info;
}

Failure check_output_parameter(const std::string& output, std::string_view name) {
  if (name != "classification") return std::nullopt;
  return Error{Code::kUnsupported, "output \"" + output +
                                       "\": classification is not done by this server; ask for the output itself and "
                                       "sort it in the client"};
}

Outcome<ht_dtype> input_dtype(const std::string& input, std::string_view datatype) {
  if (datatype == "BYTES") {
    return Error{
        Code::kUnsupported,
        "input \"" + input +
            "\" has datatype BYTES; models here take numbers only, so encode text in the client (a tokenizer)"};
  }
  if (const auto dtype = dtype_from_protocol(datatype)) return *dtype;
  return Error{Code::kInvalid,
               "input \"" + input + "\" has datatype \"" + std::string(datatype.substr(0, 32)) +
                   "\"; the protocol has BOOL, UINT8, INT8, INT16, INT32, INT64, FP16, BF16, FP32 and FP64"};
}

Failure check_nbytes(const Input& input) {
  const auto count = numel(input.shape);
  if (!count) {
    return Error{Code::kInvalid, "input \"" + input.name + "\" has shape " + to_text(input.shape) +
                                     "; sizes must not be negative and their product must fit"};
  }
  const std::size_t wanted = static_cast<std::size_t>(*count) * itemsize(input.dtype);
  if (wanted == input.nbytes) return std::nullopt;
  return Error{Code::kInvalid, "input \"" + input.name + "\" has " + std::to_string(input.nbytes) +
                                   " bytes of data; shape " + to_text(input.shape) + " of " +
                                   protocol_name(input.dtype) + " takes " + std::to_string(wanted)};
}

}  // namespace hardtack::serve
