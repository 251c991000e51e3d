#include "server/grpc/inflate.h"

#include <grpc/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

namespace hardtack::serve::rpc {

namespace {

constexpr std::size_t kFirst = 16U << 10, kLargest = std::size_t{1} << 20;  // bytes of a slice
constexpr int kGzip = 15 + 16, kZlib = 15;

// How a message is compressed: what the reader knows and ByteBuffer does not tell.
class Algorithm : public ::grpc::ProtoBufferReader {
 public:
  using ::grpc::ProtoBufferReader::ProtoBufferReader;
  ::grpc_compression_algorithm get() { return reader()->buffer_in->data.raw.compression; }
};

class Inflater {
 public:
  Inflater(int bits, std::size_t limit, Share& share) : limit_(limit), share_(share) {
    ready_ = ::inflateInit2(&stream_, bits) == Z_OK;
  }
  ~Inflater() {
    if (ready_) ::inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  Failure add(const ::grpc::Slice& in) {
    if (!ready_) return Error{Code::kNoMemory, "no memory to inflate the message; try again later"};
    stream_.next_in = const_cast<Bytef*>(in.begin());
    stream_.avail_in = static_cast<uInt>(in.size());
    while (stream_.avail_in > 0 || stream_.avail_out == 0) {
      if (ended_) return broken();
      if (stream_.avail_out == 0) {
        if (Failure full = grow()) return full;
      }
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      ended_ = result == Z_STREAM_END;
      if (result == Z_BUF_ERROR && stream_.avail_in == 0) break;  // wants more input
      if (result != Z_OK && !ended_) return broken();
      if (ended_ && stream_.avail_in == 0) break;
    }
    return std::nullopt;
  }

  Failure finish(::grpc::ByteBuffer& out) {
    if (!ended_) return broken();
    if (room_ - stream_.avail_out > limit_) return too_large();
    if (!slices_.empty()) slices_.back() = slices_.back().sub(0, slices_.back().size() - stream_.avail_out);
    out = ::grpc::ByteBuffer(slices_.data(), slices_.size());
    return std::nullopt;
  }

 private:
  static Error broken() { return {Code::kInvalid, "the compressed message is broken"}; }
  Error too_large() const {
    return {Code::kTooLarge, "the message inflates to more than the limit of " + std::to_string(limit_) + " bytes"};
  }

  Failure grow() {
    if (room_ > limit_) return too_large();
    const std::size_t more = std::min(kLargest, std::max(kFirst, room_));
    if (!share_.grow(more)) return share_.budget()->refusal("the inflated message", room_ + more);
    slices_.emplace_back(more);
    room_ += slices_.back().size();
    stream_.next_out = const_cast<Bytef*>(slices_.back().begin());
    stream_.avail_out = static_cast<uInt>(slices_.back().size());
    return std::nullopt;
  }

  const std::size_t limit_;
  Share& share_;
  z_stream stream_{};
  bool ready_ = false, ended_ = false;
  std::vector<::grpc::Slice> slices_;
  std::size_t room_ = 0;  // of all slices
};

}  // namespace

bool is_compressed(const ::grpc::ByteBuffer& bytes) {
  ::grpc::ByteBuffer same = bytes;  // shares the slices
  return same.Valid() && Algorithm(&same).get() != GRPC_COMPRESS_NONE;
}

Failure inflate(::grpc::ByteBuffer& bytes, std::size_t limit, Share& share) {
  if (!bytes.Valid()) return std::nullopt;
  const auto algorithm = Algorithm(&bytes).get();
  if (algorithm == GRPC_COMPRESS_NONE) return std::nullopt;
  std::vector<::grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return Error{Code::kInvalid, "the compressed message cannot be read"};
  Inflater inflater(algorithm == GRPC_COMPRESS_GZIP ? kGzip : kZlib, limit, share);
  for (const ::grpc::Slice& slice : slices) {
    if (Failure wrong = inflater.add(slice)) return wrong;
  }
  return inflater.finish(bytes);
}

}  // namespace hardtack::serve::rpc
