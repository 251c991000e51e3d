#include "server/http/control_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/compression.h"

namespace hardtack::serve::http {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestBody = 1U << 20;
constexpr std::size_t kKeptNbytes = 40;  // of a byte of JSON: of "\"\":1," a node of a map
constexpr std::size_t kDeepest = 32;

// Receives the parser's events. No tree is made: see json_writer.h.
class Reader {
 public:
  ControlJson object;

  bool null() { return set({}); }
  bool boolean(bool value) { return set(value); }
  bool number_integer(std::int64_t) { return set({}); }
  bool number_unsigned(std::uint64_t value) { return set(value); }
  bool number_float(double, const std::string&) { return set({}); }
  bool string(std::string& value) { return set(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool key(std::string& name) {
    if (depth_ == 2 && in_parameters_) object.parameters.insert(name);
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) {
    set({});
    if (depth_ == 1) in_parameters_ = key_ == "parameters";
    return ++depth_ < kDeepest;
  }
  bool start_array(std::size_t) {
    set({});
    if (depth_ == 1) in_parameters_ = false;
    return depth_++ > 0 && depth_ < kDeepest;  // the whole is no list
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) { return false; }

 private:
  bool set(ControlValue value) {
    if (depth_ > 1) return true;
    if (depth_ == 0) return false;  // a scalar; of an object's own start nobody asks
    if (key_ == "parameters") object.parameters.clear();
    object.members[key_] = std::move(value);
    return true;
  }
  bool leave() { return --depth_, true; }

  std::size_t depth_ = 0;
  std::string key_;  // of the outermost object
  bool in_parameters_ = false;
};

}  // namespace

Outcome<ControlJson> read_control_json(HttpRequest& request, Budget& budget) {
  if (Failure wrong = decompress(request, 0, kLargestBody, budget)) return *wrong;
  Reader reader;
  Share share(budget);
  if (request.body_nbytes == 0) return std::move(reader.object);
  if (request.body_nbytes > kLargestBody) return Error{Code::kTooLarge, "the body passes 1 MiB"};
  const std::size_t nbytes = request.body_nbytes * kKeptNbytes;
  if (!share.grow(nbytes)) return budget.refusal("the JSON", nbytes);
  if (!Json::sax_parse(request.text(), &reader)) {
    return Error{Code::kInvalid, "the body must be a JSON object, nested less than 32 deep"};
  }
  reader.object.share = std::move(share);
  return std::move(reader.object);
}

}  // namespace hardtack::serve::http
