// Compressed bodies of HTTP and messages of gRPC: the first byte says the format, the second the limit, the rest is the
// stream. Both servers must say the same of it. Then the bytes themselves are compressed as a reply, and come back.
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstring>

#include "server/fuzz/serving.h"
#include "server/grpc/inflate.h"
#include "server/http/compression.h"

namespace {

using namespace hardtack::serve;

Budget& budget() {
  static Budget only(std::uint64_t{1} << 32);
  return only;
}

struct Inflated {
  Failure failed;
  std::string bytes;
};

http::HttpRequest body_of(std::string_view data, bool gzip) {
  http::HttpRequest request;
  request.content_encoding = gzip ? "gzip" : "deflate";
  const std::shared_ptr<std::byte> body(new std::byte[data.size()], std::default_delete<std::byte[]>());
  request.owner = body;
  request.body = body.get();
  request.body_nbytes = data.size();
  if (!data.empty()) std::memcpy(request.body, data.data(), data.size());
  return request;
}

Inflated over_http(std::string_view data, bool gzip, std::size_t limit) {
  http::HttpRequest request = body_of(data, gzip);
  Inflated result;
  result.failed = http::decompress(request, 5, limit, budget());
  if (result.failed) return result;
  fuzz::require(request.body_nbytes <= limit, "the limit holds for HTTP");
  result.bytes = std::string(request.text());
  return result;
}

class Compression : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;
  void set(bool gzip) { reader()->buffer_in->data.raw.compression = gzip ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_DEFLATE; }
};

Inflated over_grpc(std::string_view data, bool gzip, std::size_t limit) {
  const std::size_t half = data.size() / 2;
  const grpc::Slice slices[] = {grpc::Slice(data.data(), half), grpc::Slice(data.data() + half, data.size() - half)};
  grpc::ByteBuffer bytes(slices, 2);
  Compression(&bytes).set(gzip);
  Inflated result;
  Share share(budget());
  result.failed = rpc::inflate(bytes, limit, share);
  if (result.failed) return result;
  fuzz::require(bytes.Length() <= limit, "the limit holds for gRPC");
  std::vector<grpc::Slice> out;
  fuzz::require(bytes.Dump(&out).ok(), "an inflated message can be read");
  for (const grpc::Slice& slice : out) {
    result.bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return result;
}

void round_trip(std::string_view data, bool gzip) {
  http::HttpReply reply;
  reply.text = std::string(data.substr(0, data.size() / 2));
  const auto* rest = reinterpret_cast<const std::byte*>(data.data() + data.size() / 2);
  if (data.size() > 4) {
    const std::size_t nbytes = data.size() - data.size() / 2;
    reply.parts = {{rest, nbytes / 2}, {rest + nbytes / 2, nbytes - nbytes / 2}};
  } else {
    reply.text = std::string(data);
  }
  http::compress(reply, gzip ? "gzip" : "deflate", budget());
  fuzz::require(reply.encoding != nullptr && reply.parts.empty(), "a reply is compressed");
  const Inflated back = over_http(reply.text, gzip, data.size() + 1);
  fuzz::require(!back.failed && back.bytes == data, "what is compressed inflates to what it was");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  if (nbytes < 2) return 0;
  const bool gzip = (data[0] & 1U) != 0;
  const std::size_t limit = std::size_t{64} << (data[1] % 12U);
  const std::string_view stream(reinterpret_cast<const char*>(data) + 2, nbytes - 2);
  const Inflated http = over_http(stream, gzip, limit), grpc = over_grpc(stream, gzip, limit);
  fuzz::require(http.failed.has_value() == grpc.failed.has_value(), "both servers inflate it, or none",
                http.failed   ? http.failed->sentence
                : grpc.failed ? grpc.failed->sentence
                              : "");
  fuzz::require(http.bytes == grpc.bytes, "both servers inflate it to the same");
  if (http.failed) {
    fuzz::require_sentence(http.failed->sentence);
    fuzz::require_sentence(grpc.failed->sentence);
    // gRPC looks at the size a slice at a time, and may find first that a stream breaks beyond the limit.
    const bool same = http.failed->code == grpc.failed->code || http.failed->code == Code::kTooLarge;
    fuzz::require(same, "both servers say the same", http.failed->sentence);
  }
  round_trip(stream, gzip);
  return 0;
}
