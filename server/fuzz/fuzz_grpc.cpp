// Messages of gRPC calls: the first byte says the method and how the message is compressed, the rest is its bytes.
#include <grpcpp/support/proto_buffer_reader.h>

#include "server/fuzz/serving.h"
#include "server/grpc/answers.h"
#include "server/grpc/infer.h"
#include "server/grpc/library_log.h"

namespace {

using namespace hardtack::serve;
namespace pb = inference;

constexpr std::size_t kMostMessage = 64U << 10;

class Compression : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;
  void set(grpc_compression_algorithm algorithm) { reader()->buffer_in->data.raw.compression = algorithm; }
};

// In two slices, so that what lies across a border is seen.
rpc::Bytes message_of(const std::uint8_t* data, std::size_t nbytes, unsigned algorithm) {
  const grpc::Slice slices[] = {grpc::Slice(data, nbytes / 2), grpc::Slice(data + nbytes / 2, nbytes - nbytes / 2)};
  rpc::Bytes bytes(slices, 2);
  constexpr grpc_compression_algorithm kAlgorithms[] = {GRPC_COMPRESS_NONE, GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP,
                                                        GRPC_COMPRESS_DEFLATE};
  Compression(&bytes).set(kAlgorithms[algorithm]);
  return bytes;
}

void check(const Failure& failed) {
  if (!failed) return;
  fuzz::require(failed->code != Code::kInternal, "no message makes an internal error", failed->sentence);
  fuzz::require_sentence(rpc::to_status(*failed).error_message());
}

void infer(const rpc::Bytes& bytes) {
  fuzz::Serving& all = fuzz::serving();
  Request request;
  rpc::Deliveries deliveries;
  const rpc::ReadRoom room{kMostMessage, all.shared, all.budget,
                           [](const Request&) -> Failure { return std::nullopt; }};
  if (Failure wrong = rpc::read_request(bytes, room, request, deliveries)) return check(wrong);
  fuzz::require(request.keep_alive != nullptr || request.inputs.empty(), "inputs are kept alive");
  for (const Input& input : request.inputs) fuzz::touch(input);
}

template <typename In, typename Out>
void answer(const rpc::Bytes& bytes) {
  static const Caller nobody;
  static const rpc::Answers answers(*fuzz::serving().repository, fuzz::serving().shared, nobody);
  In in;
  Out out;
  if (Failure wrong = rpc::parse(bytes, in, fuzz::serving().budget)) return check(wrong);
  if (Failure failed = answers.answer(in, out)) return check(failed);
  rpc::Bytes reply;
  check(rpc::write(out, reply));
  Out again;
  fuzz::require(!rpc::parse(reply, again, fuzz::serving().budget), "a reply is a message");
}

#define HARDTACK_METHOD(name) answer<pb::name##Request, pb::name##Response>
constexpr void (*kMethods[])(const rpc::Bytes&) = {
    infer,
    infer,
    infer,
    infer,
    HARDTACK_METHOD(ServerLive),
    HARDTACK_METHOD(ServerReady),
    HARDTACK_METHOD(ModelReady),
    HARDTACK_METHOD(ServerMetadata),
    HARDTACK_METHOD(ModelMetadata),
    HARDTACK_METHOD(ModelConfig),
    HARDTACK_METHOD(ModelStatistics),
    HARDTACK_METHOD(RepositoryIndex),
    HARDTACK_METHOD(RepositoryModelLoad),
    HARDTACK_METHOD(RepositoryModelUnload),
    HARDTACK_METHOD(SystemSharedMemoryStatus),
    HARDTACK_METHOD(SystemSharedMemoryRegister),
};
#undef HARDTACK_METHOD

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  if (nbytes == 0) return 0;
  static const bool quiet = (rpc::set_library_log(nullptr), true);
  (void)quiet;
  const rpc::Bytes bytes = message_of(data + 1, nbytes - 1, data[0] >> 6U);
  kMethods[data[0] % (sizeof kMethods / sizeof kMethods[0])](bytes);
  return 0;
}
