// The small JSON objects that control endpoints take.
#ifndef HARDTACK_SERVER_HTTP_CONTROL_JSON_H
#define HARDTACK_SERVER_HTTP_CONTROL_JSON_H

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/http/message.h"

namespace hardtack::serve::http {

/// monostate: neither of the others.
using ControlValue = std::variant<std::monostate, bool, std::uint64_t, std::string>;

/// The last of members that have one name. Counted while it lives.
struct ControlJson {
  std::map<std::string, ControlValue, std::less<>> members;
  std::set<std::string> parameters;  // names of the members of "parameters", if that is an object
  Share share;

  /// Null: there is none.
  const ControlValue* find(std::string_view name) const {
    const auto found = members.find(name);
    return found == members.end() ? nullptr : &found->second;
  }
};

/// Of a request's body, inflated here; of none the empty object. kInvalid, kTooLarge, kNoMemory in words.
Outcome<ControlJson> read_control_json(HttpRequest& request, Budget& budget);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_CONTROL_JSON_H
