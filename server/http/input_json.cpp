// The numbers of JSON inputs as elements of the inputs' types.

#include <limits>

#include "server/core/protocol.h"
#include "server/http/infer_json.h"

namespace hardtack::serve::http {

namespace {

Error half_type(const std::string& which, ht_dtype dtype) {
  return {Code::kUnsupported,
          which + " is " + protocol_name(dtype) + ", which JSON does not carry; use the binary form"};
}

template <typename T>
Failure put_whole(const JsonInput& input, T* to) {
  const JsonData& data = input.data;
  if (data.is_real) {
    return Error{Code::kInvalid, input_named(input.name) + " is " + input.datatype +
                                     (data.too_big ? " and its data has a number beyond 64 bits"
                                                   : " and its data has numbers with a fraction or exponent")};
  }
  for (std::size_t i = 0; i < data.whole.size(); ++i) {
    const std::int64_t value = data.whole[i];
    if (value < static_cast<std::int64_t>(std::numeric_limits<T>::min()) ||
        value > static_cast<std::int64_t>(std::numeric_limits<T>::max())) {
      return Error{Code::kInvalid, input_named(input.name) + ": element " + std::to_string(i) + " is " +
                                       std::to_string(value) + ", which " + input.datatype + " does not hold"};
    }
    to[i] = static_cast<T>(value);
  }
  return std::nullopt;
}

template <typename T>
Failure put_real(const JsonInput& input, T* to) {
  const JsonData& data = input.data;
  if (data.is_real) {
    for (std::size_t i = 0; i < data.real.size(); ++i) {
      to[i] = static_cast<T>(data.real[i]);
      if (to[i] - to[i] != 0) {
        return Error{Code::kInvalid, input_named(input.name) + ": element " + std::to_string(i) + " is too large for " +
                                         input.datatype};
      }
    }
  } else {
    for (std::size_t i = 0; i < data.whole.size(); ++i) to[i] = static_cast<T>(data.whole[i]);
  }
  return std::nullopt;
}

Failure put(const JsonInput& input, ht_dtype dtype, void* to) {
  const int bits = dtype.bits;
  if (dtype.code == 6) return put_whole<bool>(input, static_cast<bool*>(to));
  if (dtype.code == 2 && bits == 32) return put_real(input, static_cast<float*>(to));
  if (dtype.code == 2 && bits == 64) return put_real(input, static_cast<double*>(to));
  if (dtype.code == 0 && bits == 64) return put_whole(input, static_cast<std::int64_t*>(to));
  if (dtype.code == 0 && bits == 32) return put_whole(input, static_cast<std::int32_t*>(to));
  if (dtype.code == 0 && bits == 16) return put_whole(input, static_cast<std::int16_t*>(to));
  if (dtype.code == 0 && bits == 8) return put_whole(input, static_cast<std::int8_t*>(to));
  if (dtype.code == 1 && bits == 8) return put_whole(input, static_cast<std::uint8_t*>(to));
  if (dtype.code == 1 && bits == 16) return put_whole(input, static_cast<std::uint16_t*>(to));
  if (dtype.code == 1 && bits == 32) return put_whole(input, static_cast<std::uint32_t*>(to));
  return half_type(input_named(input.name), dtype);
}

}  // namespace

Outcome<Elements> to_elements(const JsonInput& input, ht_dtype dtype, Budget& budget) {
  const JsonData& data = input.data;
  const std::string which = input_named(input.name);
  const auto count = numel(input.shape);
  if (!count)
    return Error{Code::kInvalid, which + " has shape " + to_text(input.shape) + "; sizes must fit and not be negative"};
  if (data.ragged) return Error{Code::kInvalid, which + ": the lists of its data have different lengths"};
  const bool flat = data.nesting.size() <= 1;
  if (data.size() != static_cast<std::size_t>(*count)) {
    return Error{Code::kInvalid, which + " has " + std::to_string(data.size()) + " elements in its data; shape " +
                                     to_text(input.shape) + " takes " + std::to_string(*count)};
  }
  if (!flat && *count > 0 && data.nesting != input.shape) {
    return Error{Code::kInvalid, which + ": its data is nested like " + to_text(data.nesting) + ", its shape is " +
                                     to_text(input.shape)};
  }
  if (data.has_bool && dtype.code != 6) {
    return Error{Code::kInvalid, which + " is " + input.datatype + " and its data has true or false"};
  }
  Elements elements;
  elements.nbytes = data.size() * itemsize(dtype);
  elements.memory = budget.allocate(elements.nbytes);
  if (elements.memory == nullptr) return budget.refusal("the data of " + which, elements.nbytes);
  if (Failure wrong = put(input, dtype, elements.memory.get())) return *wrong;
  return elements;
}

}  // namespace hardtack::serve::http
