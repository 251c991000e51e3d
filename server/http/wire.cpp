#include "server/http/wire.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace hardtack::serve::http {

namespace {

namespace beast = boost::beast;
using Field = beast::http::field;

std::string text_of(beast::string_view text) { return std::string(text.data(), text.size()); }

// Of a field that is there twice, the first that says something counts.
void set_once(std::string& to, beast::string_view value) {
  if (to.empty()) to.assign(value.data(), value.size());
}

void to_lower(std::string& text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

HttpReply closing(int status, const std::string& sentence) {
  HttpReply reply = error_reply(status, sentence);
  reply.close = true;
  return reply;
}

}  // namespace

HttpRequest request_of(const Fields& head) {
  HttpRequest request;
  switch (head.method()) {
    case beast::http::verb::get: request.method = Method::kGet; break;
    case beast::http::verb::head: request.method = Method::kHead; break;
    case beast::http::verb::post: request.method = Method::kPost; break;
    default: request.method = Method::kOther;
  }
  request.target = text_of(head.target());
  for (const auto& field : head) {
    switch (field.name()) {
      case Field::content_encoding: set_once(request.content_encoding, field.value()); break;
      case Field::accept_encoding: set_once(request.accept_encoding, field.value()); break;
      case Field::authorization: set_once(request.authorization, field.value()); break;
      case Field::unknown:
        if (beast::iequals(field.name_string(), "Inference-Header-Content-Length")) {
          set_once(request.json_length, field.value());
        }
        break;
      default: break;
    }
  }
  to_lower(request.content_encoding);
  to_lower(request.accept_encoding);
  return request;
}

bool takes_long(const HttpRequest& request) {
  constexpr std::size_t kMostJson = 8U << 10, kMostBytes = std::size_t{1} << 20, kMostInflated = 64;
  const bool inflated = !request.content_encoding.empty() && request.content_encoding != "identity";
  if (inflated) return request.body_nbytes > kMostInflated;  // of which a thousand times as much may come
  std::uint64_t json = request.body_nbytes;
  const std::string_view target = request.target;
  const bool infers =
      target.size() > 6 && target.substr(target.size() - 6) == "/infer";  // nobody else reads the header
  if (infers && !request.json_length.empty() && request.json_length.size() < 18) {
    json = std::strtoull(request.json_length.c_str(), nullptr, 10);
  }
  return json > kMostJson || request.body_nbytes > kMostBytes;
}

bool is_about_health(const HttpRequest& request) { return request.target.rfind("/v2/health/", 0) == 0; }

bool expects_continue(const Fields& head) { return beast::iequals(head[Field::expect], "100-continue"); }

std::optional<HttpReply> refuse_head(const Fields& head, bool chunked, std::uint64_t content_length,
                                     std::size_t max_body) {
  if (head.version() >= 11 && head.count(Field::host) != 1)
    return closing(400, "a request of HTTP/1.1 needs one Host header");
  if (head.count(Field::authorization) > 1) return closing(400, "a request has one Authorization header at most");
  if (head.count(Field::transfer_encoding) > 0) {
    if (!chunked || !beast::iequals(head[Field::transfer_encoding], "chunked")) {
      return closing(501, "Transfer-Encoding must be chunked or absent; compress with Content-Encoding");
    }
    if (head.version() < 11) return closing(400, "a request of HTTP/1.0 has no Transfer-Encoding");
    if (head.count(Field::content_length) > 0)
      return closing(400, "a request has Content-Length or Transfer-Encoding, not both");
  }
  if (content_length > max_body) {
    return closing(413, "the body has " + std::to_string(content_length) + " bytes; this server takes at most " +
                            std::to_string(max_body));
  }
  if (head.count(Field::expect) > 0 && !expects_continue(head)) {
    return closing(417, "the only expectation that is met is 100-continue");
  }
  return std::nullopt;
}

std::optional<HttpReply> reply_to_error(beast::error_code error, std::size_t max_header, std::size_t max_body) {
  using E = beast::http::error;
  if (error == E::header_limit || error == E::buffer_overflow) {
    return closing(431, "the request's header passes this server's limit of " + std::to_string(max_header) + " bytes");
  }
  if (error == E::body_limit) {
    return closing(413, "the body passes this server's limit of " + std::to_string(max_body) + " bytes");
  }
  if (error == E::bad_version) return closing(505, "this server speaks HTTP/1.1 and HTTP/1.0");
  if (error == E::partial_message) return closing(400, "the request ended before it was complete");
  if (error.category() == beast::http::make_error_code(E::bad_method).category() && error != E::end_of_stream) {
    return closing(400, "this is no sound HTTP: " + error.message());
  }
  return std::nullopt;
}

std::string head_of(const HttpReply& reply, bool keep_alive) {
  std::string head;
  head.reserve(256);
  (((head += "HTTP/1.1 ") += std::to_string(reply.status)) += ' ') += reason_of(reply.status);
  (head += "\r\nContent-Type: ") += reply.content_type;
  (head += "\r\nContent-Length: ") += std::to_string(reply.body_nbytes());
  if (reply.has_json_length) (head += "\r\nInference-Header-Content-Length: ") += std::to_string(reply.json_nbytes);
  if (reply.encoding != nullptr) (head += "\r\nContent-Encoding: ") += reply.encoding;
  if (reply.allow != nullptr) (head += "\r\nAllow: ") += reply.allow;
  if (reply.status == 401) head += "\r\nWWW-Authenticate: Bearer";
  if (reply.status == 429) head += "\r\nRetry-After: 1";
  if (reply.status == 503) head += "\r\nRetry-After: 1";
  head += keep_alive ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
  return head;
}

}  // namespace hardtack::serve::http
