#include "server/grpc/contents.h"

#include <limits>
#include <string>

#include "server/core/protocol.h"

namespace hardtack::serve::rpc {

namespace {

using Contents = ::inference::InferTensorContents;

struct List {
  const char* name;
  int numel;
};

template <typename Function>
void for_each_list(const Contents& contents, Function&& function) {
  function(List{"bool_contents", contents.bool_contents_size()});
  function(List{"int_contents", contents.int_contents_size()});
  function(List{"int64_contents", contents.int64_contents_size()});
  function(List{"uint_contents", contents.uint_contents_size()});
  function(List{"uint64_contents", contents.uint64_contents_size()});
  function(List{"fp32_contents", contents.fp32_contents_size()});
  function(List{"fp64_contents", contents.fp64_contents_size()});
  function(List{"bytes_contents", contents.bytes_contents_size()});
}

// The list that holds elements of a type; null for types that come raw only.
const char* list_of(ht_dtype dtype) {
  switch (dtype.code) {
    case 0: return dtype.bits == 64 ? "int64_contents" : "int_contents";
    case 1: return dtype.bits == 64 ? "uint64_contents" : "uint_contents";
    case 2: return dtype.bits == 64 ? "fp64_contents" : dtype.bits == 32 ? "fp32_contents" : nullptr;
    case 6: return "bool_contents";
    default: return nullptr;
  }
}

Failure check_lists(const Contents& contents, const Input& input, const std::string& wanted) {
  const std::string which = input_named(input.name);
  Failure wrong_list, wrong_numel;
  for_each_list(contents, [&](const List& list) {
    const auto elements = std::to_string(list.numel) + " elements in " + list.name;
    if (wanted != list.name) {
      if (list.numel == 0 || wrong_list) return;
      wrong_list = Error{Code::kInvalid, which + " is " + protocol_name(input.dtype) + ", whose elements belong into " +
                                             wanted + "; it has " + elements};
      return;
    }
    const auto count = numel(input.shape);
    if (!count || *count == list.numel) return;  // the core refuses a shape without a count
    wrong_numel = Error{Code::kInvalid, which + " has " + elements + "; shape " + to_text(input.shape) + " takes " +
                                            std::to_string(*count)};
  });
  return wrong_list ? wrong_list : wrong_numel;
}

template <typename T>
void view(const google::protobuf::RepeatedField<T>& list, Input& input) {
  input.data = list.data();
  input.nbytes = static_cast<std::size_t>(list.size()) * sizeof(T);
}

template <typename To, typename From>
Failure narrow(const google::protobuf::RepeatedField<From>& list, Input& input, InputMemory& memory) {
  const std::size_t nbytes = static_cast<std::size_t>(list.size()) * sizeof(To);
  auto block = memory.make(input, nbytes);
  if (!block.ok()) return block.error();
  auto* to = reinterpret_cast<To*>(*block);
  for (int i = 0; i < list.size(); ++i) {
    const From value = list[i];
    if (value < static_cast<From>(std::numeric_limits<To>::min()) ||
        value > static_cast<From>(std::numeric_limits<To>::max())) {
      return Error{Code::kInvalid, input_named(input.name) + ": element " + std::to_string(i) + " is " +
                                       std::to_string(value) + ", which " + protocol_name(input.dtype) +
                                       " does not hold"};
    }
    to[i] = static_cast<To>(value);
  }
  return std::nullopt;
}

}  // namespace

bool has_elements(const Contents& contents) {
  bool any = false;
  for_each_list(contents, [&](const List& list) { any = any || list.numel > 0; });
  return any;
}

Failure take_contents(const Contents& contents, Input& input, InputMemory& memory) {
  const char* wanted = list_of(input.dtype);
  if (wanted == nullptr) {
    return Error{Code::kUnsupported, input_named(input.name) + " is " + protocol_name(input.dtype) +
                                         ", which has no list of elements; send it as raw_input_contents"};
  }
  if (Failure wrong = check_lists(contents, input, wanted)) return wrong;
  const int bits = input.dtype.bits;
  switch (input.dtype.code) {
    case 0:
      if (bits == 8) return narrow<std::int8_t>(contents.int_contents(), input, memory);
      if (bits == 16) return narrow<std::int16_t>(contents.int_contents(), input, memory);
      bits == 64 ? view(contents.int64_contents(), input) : view(contents.int_contents(), input);
      break;
    case 1:
      if (bits == 8) return narrow<std::uint8_t>(contents.uint_contents(), input, memory);
      if (bits == 16) return narrow<std::uint16_t>(contents.uint_contents(), input, memory);
      bits == 64 ? view(contents.uint64_contents(), input) : view(contents.uint_contents(), input);
      break;
    case 2: bits == 64 ? view(contents.fp64_contents(), input) : view(contents.fp32_contents(), input); break;
    default: view(contents.bool_contents(), input); break;
  }
  return std::nullopt;
}

}  // namespace hardtack::serve::rpc
