// What both protocols say alike: the server's description and words that must not differ between HTTP and gRPC.
#ifndef HARDTACK_SERVER_CORE_PROTOCOL_H
#define HARDTACK_SERVER_CORE_PROTOCOL_H

#include <string>
#include <vector>

#include "server/core/error.h"
#include "server/core/request.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve {

/// "hardtack", the library's version, and the protocol's extensions that are served.
struct ServerInfo {
  std::string name, version;
  std::vector<std::string> extensions;
};
const ServerInfo& server_info();

/// The platform and backend that models are told to have.
inline constexpr const char* kPlatform = "hardtack_pkg";
inline constexpr const char* kBackend = "hardtack";

/// "input \"x\"" and "output \"y\"", as sentences begin; long names are cut.
std::string input_named(std::string_view name);
std::string output_named(std::string_view name);

/// A size that a parameter of a tensor (`which`, as input_named has it) gives. kInvalid: no whole number, or negative.
Outcome<std::uint64_t> size_parameter(const std::string& which, const char* name, const Parameter& value);

/// Refuses parameters of a load that would change what is loaded: `config` and `file:...`.
Failure check_load_parameter(std::string_view name);

/// Refuses what a request may not ask of an output: the `classification` extension, cuda shared memory.
Failure check_output_parameter(const std::string& output, std::string_view name);

/// The type of an input as the client spelled it. BYTES and unknown names are refused in words.
Outcome<ht_dtype> input_dtype(const std::string& input, std::string_view datatype);

/// That an input has the bytes that its dtype and shape say.
Failure check_nbytes(const Input& input);

/// An input whose data comes later, or lies in shared memory. kInvalid: the place there has not the input's size.
Outcome<Input> make_input(std::string name, ht_dtype dtype, Shape shape, const Placement& place);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_PROTOCOL_H
