// What parsing JSON takes beside what is kept of it.
#ifndef HARDTACK_SERVER_HTTP_JSON_TEXT_H
#define HARDTACK_SERVER_HTTP_JSON_TEXT_H

#include <cstddef>
#include <string_view>

namespace hardtack::serve::http {

/// Bytes of the longest string or number, or somewhat more. The parser holds each whole, however little is kept of it.
std::size_t longest_token(std::string_view text);

/// Bytes that the parser may take for its longest token: two copies, which grow by doubling, and some
/// for a sentence that says what is wrong with it. 0 for what is small.
std::size_t parser_nbytes(std::string_view text);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_JSON_TEXT_H
