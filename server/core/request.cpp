#include "server/core/request.h"

#include <limits>

namespace hardtack::serve {

namespace {

Error wrong_type(std::string_view name, const char* wanted) {
  return {Code::kInvalid, "parameter \"" + std::string(name) + "\" must be " + wanted};
}

Failure set_timeout(Request& request, const Parameter& value) {
  std::int64_t microseconds = 0;
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    microseconds = *number;
  } else if (const auto* text = std::get_if<std::string>(&value); text != nullptr && !text->empty() &&
                                                                  text->size() < 18 &&
                                                                  text->find_first_not_of("0123456789") == text->npos) {
    microseconds = std::stoll(*text);  // protobuf's parameters of some clients are strings
  } else {
    return wrong_type("timeout", "a whole number of microseconds");
  }
  if (microseconds < 0) return wrong_type("timeout", "a whole number of microseconds, not negative");
  if (microseconds == 0) return std::nullopt;  // the protocol's clients send 0 for none
  constexpr std::int64_t kLongest = std::int64_t{1000000} * 86400 * 365;
  request.deadline = request.arrived + std::chrono::microseconds(std::min(microseconds, kLongest));
  return std::nullopt;
}

Failure set_sequence_id(Request& request, const Parameter& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    request.sequence.id = *number == 0 ? "" : std::to_string(*number);
    request.sequence.number = true;
    return std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return wrong_type("sequence_id", "a whole number or text");
  if (text->size() > 256) return wrong_type("sequence_id", "at most 256 bytes long");
  request.sequence.id = *text;
  request.sequence.number = false;
  return std::nullopt;
}

}  // namespace

void tell(const Done& done, Response&& response) noexcept try { done(std::move(response)); } catch (...) {
}

Failure set_id(Request& request, std::string id) {
  constexpr std::size_t kLongest = 4096;
  if (id.size() > kLongest) {
    return Error{Code::kInvalid, "the request's id has " + std::to_string(id.size()) + " bytes; it may have " +
                                     std::to_string(kLongest)};
  }
  request.id = std::move(id);
  return std::nullopt;
}

Failure apply_parameter(Request& request, std::string_view name, const Parameter& value) {
  if (name == "timeout") return set_timeout(request, value);
  if (name == "sequence_id") return set_sequence_id(request, value);
  if (name == "sequence_start" || name == "sequence_end") {
    const auto* flag = std::get_if<bool>(&value);
    if (flag == nullptr) return wrong_type(name, "true or false");
    (name == "sequence_start" ? request.sequence.start : request.sequence.end) = *flag;
  }
  if (name == "entry") {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) return wrong_type(name, "the name of an entry point");
    request.entry = *text;
  }
  return std::nullopt;
}

}  // namespace hardtack::serve
