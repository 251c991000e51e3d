// From the parsed head of a request to an HttpRequest, and from an HttpReply to bytes.
#ifndef HARDTACK_SERVER_HTTP_WIRE_H
#define HARDTACK_SERVER_HTTP_WIRE_H

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <optional>
#include <string>

#include "server/http/message.h"

namespace hardtack::serve::http {

using Fields = boost::beast::http::request_header<boost::beast::http::fields>;

/// Method, target and the headers that matter.
HttpRequest request_of(const Fields& head);

/// A reply to a head that cannot be served, before its body is read: a missing Host, an unknown Transfer-Encoding or
/// expectation, a body beyond `max_body`. Nothing when it is fine.
std::optional<HttpReply> refuse_head(const Fields& head, bool chunked, std::uint64_t content_length,
                                     std::size_t max_body);

/// The reply to what Beast's parser says of a broken head or body; nothing when the client just went away.
std::optional<HttpReply> reply_to_error(boost::beast::error_code error, std::size_t max_header, std::size_t max_body);

/// Status line and headers of a reply.
std::string head_of(const HttpReply& reply, bool keep_alive);

bool expects_continue(const Fields& head);

/// Whether reading the body may take so long that an io thread must not do it: it is compressed, or its JSON or all of it
/// is large.
bool takes_long(const HttpRequest& request);

/// Whether it asks if the server lives or is ready, which takes no time.
bool is_about_health(const HttpRequest& request);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_WIRE_H
