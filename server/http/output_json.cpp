// Elements of outputs as JSON numbers: the shortest text that reads back as the same value.

#include <charconv>
#include <cmath>
#include <cstring>

#include "server/http/infer_json.h"

namespace hardtack::serve::http {

namespace {

template <typename T>
void append_numbers(std::string& out, const std::byte* data, std::size_t count) {
  char text[64];
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    if (i > 0) out += ',';
    out.append(text, end);
  }
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

Failure append_elements(std::string& out, const Output& output) {
  const std::size_t count = output.nbytes / itemsize(output.dtype);
  const int code = output.dtype.code, bits = output.dtype.bits;
  const bool real = code == 2 && bits >= 32;
  if ((code == 2 && bits == 16) || code == 4) {
    return Error{Code::kUnsupported, "output \"" + output.name + "\" is " + protocol_name(output.dtype) +
                                         ", which JSON does not carry; ask for it with binary_data"};
  }
  const std::size_t bad = !real        ? SIZE_MAX
                          : bits == 32 ? first_not_finite<float>(output.data, count)
                                       : first_not_finite<double>(output.data, count);
  if (bad != SIZE_MAX) {
    return Error{Code::kUnsupported, "output \"" + output.name + "\" has NaN or infinity at element " +
                                         std::to_string(bad) +
                                         ", which JSON does not carry; ask for it with binary_data"};
  }
  out += '[';
  if (code == 6) {
    for (std::size_t i = 0; i < count; ++i)
      (i > 0 ? out += ',' : out) += output.data[i] != std::byte{0} ? "true" : "false";
  } else if (code == 2) {
    bits == 32 ? append_numbers<float>(out, output.data, count) : append_numbers<double>(out, output.data, count);
  } else if (code == 1) {
    append_numbers<std::uint8_t>(out, output.data, count);
  } else if (bits == 64) {
    append_numbers<std::int64_t>(out, output.data, count);
  } else if (bits == 32) {
    append_numbers<std::int32_t>(out, output.data, count);
  } else if (bits == 16) {
    append_numbers<std::int16_t>(out, output.data, count);
  } else {
    append_numbers<std::int8_t>(out, output.data, count);
  }
  out += ']';
  return std::nullopt;
}

}  // namespace hardtack::serve::http
