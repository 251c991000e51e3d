// A request and a reply of HTTP, as the routes see them: no sockets, no parsing of the wire.
#ifndef HARDTACK_SERVER_HTTP_MESSAGE_H
#define HARDTACK_SERVER_HTTP_MESSAGE_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core/access.h"
#include "server/core/budget.h"
#include "server/core/error.h"
#include "server/core/request.h"

namespace hardtack::serve::http {

enum class Method { kGet, kHead, kPost, kOther };

struct HttpRequest {
  Method method = Method::kOther;
  std::string target;            // as it came: "/v2/models/m/infer?x=1"
  std::string content_encoding;  // lower case; "" for none
  std::string accept_encoding;
  std::string authorization;
  std::string json_length;            // the header Inference-Header-Content-Length; "" without
  std::shared_ptr<const void> owner;  // of the body
  std::byte* body = nullptr;
  std::size_t body_nbytes = 0;
  Clock::time_point arrived{};
  std::shared_ptr<std::atomic<bool>> cancelled;
  RunHere run_here = RunHere::kNo;
  bool on_io_thread = false;     // which must not be held up: what takes long goes to Routes' `parsing`
  std::uint64_t connection = 0;  // a number of its own
  Caller caller;                 // by Routes::admit

  std::uint64_t client() const { return caller.client(connection); }
  std::string_view text() const { return {reinterpret_cast<const char*>(body), body_nbytes}; }
};

/// Bytes of a reply's body after its text; they live as long as `owner`.
struct Part {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

struct HttpReply {
  int status = 200;
  const char* content_type = "application/json";
  std::string text;
  std::vector<Part> parts;
  std::shared_ptr<const void> owner;
  Share share;                     // of the text, where that may be long
  bool has_json_length = false;    // send the size of the JSON text: binary parts follow it
  std::size_t json_nbytes = 0;     // that size, before compression
  const char* encoding = nullptr;  // "gzip" or "deflate" once compressed
  const char* allow = nullptr;     // for 405
  bool drop = false;               // the client is gone, or there is no memory to answer: close, write nothing
  bool close = false;

  std::size_t body_nbytes() const {
    std::size_t sum = text.size();
    for (const Part& part : parts) sum += part.nbytes;
    return sum;
  }
};

/// Called exactly once, on any thread.
using Reply = std::function<void(HttpReply&&)>;

int status_of(Code code);
const char* reason_of(int status);

/// {"error": sentence}; where there is no memory even for that, one that drops the connection.
HttpReply error_reply(int status, std::string_view sentence) noexcept;
HttpReply error_reply(const Error& error) noexcept;

/// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_MESSAGE_H
