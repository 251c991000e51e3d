// Elements of outputs as JSON numbers: the shortest text that reads back as the same value.

#include <charconv>
#include <cmath>
#include <cstring>

#include "server/http/infer_json.h"

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kLongest = 32;  // of a number and its comma

std::size_t wanted_for_more(const std::string& out) { return 2 * out.capacity() + kLongest; }

// Room for one number more, counted before it is there.
bool has_room(std::string& out, Share& share) {
  if (out.capacity() - out.size() >= kLongest) return true;
  const std::size_t wanted = wanted_for_more(out);
  if (!share.grow(wanted)) return false;  // beside what is there, which string counts for less than it
  out.reserve(wanted);
  return true;
}

template <typename T>
std::to_chars_result print(char* text, T value) {
  return std::to_chars(text, text + kLongest, value);
}

std::to_chars_result print(char* text, bool value) {
  const std::size_t nbytes = value ? 4 : 5;
  std::memcpy(text, value ? "true" : "false", nbytes);
  return {text + nbytes, std::errc()};
}

template <typename T>
bool append_numbers(std::string& out, const std::byte* data, std::size_t count, Share& share) {
  char text[kLongest];
  for (std::size_t i = 0; i < count; ++i) {
    if (!has_room(out, share)) return false;
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    if (i > 0) out += ',';
    out.append(text, print(text, value).ptr);
  }
  return true;
}

bool append_all(std::string& out, const Output& output, Share& share) {
  const std::size_t count = output.nbytes / itemsize(output.dtype);
  const int code = output.dtype.code, bits = output.dtype.bits;
  if (code == 6) return append_numbers<bool>(out, output.data, count, share);
  if (code == 2 && bits == 32) return append_numbers<float>(out, output.data, count, share);
  if (code == 2) return append_numbers<double>(out, output.data, count, share);
  if (code == 1 && bits == 8) return append_numbers<std::uint8_t>(out, output.data, count, share);
  if (code == 1 && bits == 16) return append_numbers<std::uint16_t>(out, output.data, count, share);
  if (code == 1) return append_numbers<std::uint32_t>(out, output.data, count, share);
  if (bits == 64) return append_numbers<std::int64_t>(out, output.data, count, share);
  if (bits == 32) return append_numbers<std::int32_t>(out, output.data, count, share);
  if (bits == 16) return append_numbers<std::int16_t>(out, output.data, count, share);
  return append_numbers<std::int8_t>(out, output.data, count, share);
}

template <typename T>
std::size_t first_not_finite(const std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    if (!std::isfinite(value)) return i;
  }
  return SIZE_MAX;
}

}  // namespace

Failure check_json_type(const Output& output) {
  const int code = output.dtype.code, bits = output.dtype.bits;
  if (code != 4 && (code != 2 || bits != 16)) return std::nullopt;
  return Error{Code::kUnsupported, "output \"" + output.name + "\" is " + protocol_name(output.dtype) +
                                       ", which JSON does not carry; ask for it with binary_data"};
}

Failure append_elements(std::string& out, const Output& output, Share& share) {
  if (Failure wrong = check_json_type(output)) return wrong;
  const std::size_t count = output.nbytes / itemsize(output.dtype);
  const std::size_t bad = output.dtype.code != 2    ? SIZE_MAX
                          : output.dtype.bits == 32 ? first_not_finite<float>(output.data, count)
                                                    : first_not_finite<double>(output.data, count);
  if (bad != SIZE_MAX) {
    return Error{Code::kUnsupported, "output \"" + output.name + "\" has NaN or infinity at element " +
                                         std::to_string(bad) +
                                         ", which JSON does not carry; ask for it with binary_data"};
  }
  out += '[';
  if (!append_all(out, output, share)) {
    return share.budget()->refusal("output \"" + output.name + "\" as JSON (binary_data takes less)",
                                   share.nbytes() + wanted_for_more(out));
  }
  out += ']';
  return std::nullopt;
}

}  // namespace hardtack::serve::http
