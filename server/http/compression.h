// gzip and deflate of bodies, with a bound on what they may become.
#ifndef HARDTACK_SERVER_HTTP_COMPRESSION_H
#define HARDTACK_SERVER_HTTP_COMPRESSION_H

#include <string>
#include <string_view>

#include "server/http/message.h"

namespace hardtack::serve::http {

/// Replaces a compressed body by what it stands for, placed so that what follows the JSON part of `json_nbytes` is
/// aligned. kUnsupported for other encodings than gzip, deflate and identity; kTooLarge beyond `limit` bytes; kInvalid
/// for broken data; kNoMemory.
Failure decompress(HttpRequest& request, std::size_t json_nbytes, std::size_t limit, Budget& budget);

/// The encoding for a reply that the Accept-Encoding allows: "gzip", "deflate" or null.
const char* accepted_encoding(std::string_view accept);

/// Compresses the reply's whole body into its text. Left as it is when there is no memory.
void compress(HttpReply& reply, const char* encoding, Budget& budget);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_COMPRESSION_H
