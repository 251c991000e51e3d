#include "server/grpc/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <climits>

#include "server/core/text.h"
#include "server/grpc/inflate.h"

namespace hardtack::serve::rpc {

namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr std::size_t kLargestControl = std::size_t{1} << 20;
constexpr int kMostFields = 1 << 16;
constexpr std::size_t kCopied = 8U << 10;               // raw contents up to here are cheaper to copy than to share
constexpr std::size_t kLongestStatus = 4U << 10;        // clients refuse long trailers
constexpr std::uint8_t kRawTag = 6 << 3 | 2;            // ModelInferResponse.raw_output_contents
constexpr std::uint8_t kInferResponseTag = 2 << 3 | 2;  // ModelStreamInferResponse.infer_response

Error no_message(const google::protobuf::MessageLite& message) {
  return {Code::kInvalid, "the request's bytes are no message " + message.GetTypeName()};
}

// How many numbers a packed list of so many bytes has; the stream stands behind it then. False: it has not so many bytes.
bool count_numbers(CodedInputStream& in, std::uint32_t nbytes, std::size_t& numbers) {
  while (nbytes > 0) {
    const void* data = nullptr;
    int there = 0;
    if (!in.GetDirectBufferPointer(&data, &there)) return false;
    const int n = static_cast<int>(std::min<std::uint32_t>(nbytes, static_cast<std::uint32_t>(there)));
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    numbers += static_cast<std::size_t>(std::count_if(bytes, bytes + n, [](std::uint8_t b) { return b < 0x80; }));
    in.Skip(n);
    nbytes -= static_cast<std::uint32_t>(n);
  }
  return true;
}

// An empty message takes two bytes to send and a hundred to keep. Counts what is kept each for itself: fields of the
// request, of its inputs and outputs, and of the inputs' contents. False: too many. Bytes that make no sense end the
// count; parsing refuses them. `numbers`: those of packed lists, one byte of which may become eight.
bool count_fields(CodedInputStream& in, int depth, int& left, std::size_t& numbers) {
  while (const std::uint32_t tag = in.ReadTag()) {
    if (--left < 0) return false;
    const std::uint32_t field = tag >> 3;
    std::uint64_t varint = 0;
    std::uint32_t length = 0;
    switch (tag & 7) {
      case 0:
        if (!in.ReadVarint64(&varint)) return true;
        break;
      case 1:
        if (!in.Skip(8)) return true;
        break;
      case 5:
        if (!in.Skip(4)) return true;
        break;
      case 2: {
        if (!in.ReadVarint32(&length) || length > INT_MAX) return true;
        const bool inside = (depth == 0 && (field == 5 || field == 6)) || (depth == 1 && field == 5);
        if (!inside) {
          const bool shape = depth == 1 && field == 3, contents = depth == 2 && field >= 2 && field <= 5;
          if (shape || contents ? !count_numbers(in, length, numbers) : !in.Skip(static_cast<int>(length))) return true;
          break;
        }
        const auto limit = in.PushLimit(static_cast<int>(length));
        if (!count_fields(in, depth + 1, left, numbers)) return false;
        if (in.BytesUntilLimit() != 0) return true;
        in.PopLimit(limit);
        break;
      }
      default: break;  // groups: their fields follow
    }
  }
  return true;
}

Failure parse_any(Bytes& bytes, google::protobuf::MessageLite& message) {
  if (!bytes.Valid()) return no_message(message);
  ::grpc::ProtoBufferReader reader(&bytes);
  if (!message.ParseFromZeroCopyStream(&reader) || !reader.status().ok()) return no_message(message);
  return std::nullopt;
}

Failure check_length(std::size_t nbytes) {
  if (nbytes <= INT_MAX) return std::nullopt;
  return Error{Code::kTooLarge, "the answer has " + std::to_string(nbytes) +
                                    " bytes and a message holds 2 GiB; ask for fewer outputs or use shared memory"};
}

std::size_t raw_nbytes(const Raw& raw) { return 1 + CodedOutputStream::VarintSize64(raw.nbytes) + raw.nbytes; }

void append_head(std::string& text, std::uint8_t tag, std::size_t nbytes) {
  std::uint8_t varint[10];
  const auto* end = CodedOutputStream::WriteVarint64ToArray(nbytes, varint);
  text += static_cast<char>(tag);
  text.append(reinterpret_cast<const char*>(varint), static_cast<std::size_t>(end - varint));
}

::grpc::Slice shared_slice(const Raw& raw, const std::shared_ptr<const void>& owner) {
  using Owner = std::shared_ptr<const void>;
  return ::grpc::Slice(
      const_cast<void*>(raw.data), raw.nbytes, [](void* kept) { delete static_cast<Owner*>(kept); }, new Owner(owner));
}

}  // namespace

bool takes_long(const Bytes& bytes) {
  constexpr std::size_t kMost = 64U << 10;
  if (!bytes.Valid()) return false;
  return bytes.Length() > kMost || is_compressed(bytes);
}

Failure parse(const Bytes& bytes, google::protobuf::MessageLite& message, Budget& budget) {
  Bytes plain = bytes;  // shares the slices
  Share inflated(budget);
  if (Failure wrong = inflate(plain, kLargestControl, inflated)) return wrong;
  if (plain.Valid() && plain.Length() > kLargestControl) {
    return Error{Code::kTooLarge, "a " + message.GetTypeName() + " may have 1 MiB, this one has " +
                                      std::to_string(plain.Length()) + " bytes"};
  }
  return parse_any(plain, message);
}

Failure parse_infer(const Bytes& bytes, std::size_t limit, pb::ModelInferRequest& message, Share& share) {
  // a list of numbers grows by doubling, and a shape is copied once more
  constexpr std::size_t kFieldNbytes = 128, kNumberNbytes = 3 * sizeof(std::int64_t), kSmall = 4096;
  Bytes plain = bytes;
  Share inflated(*share.budget());
  if (Failure wrong = inflate(plain, limit, inflated)) return wrong;
  const std::size_t nbytes = plain.Valid() ? plain.Length() : 0;
  std::size_t fields = nbytes / 2, numbers = nbytes;  // a field takes two bytes at least
  if (nbytes > kSmall) {
    ::grpc::ProtoBufferReader reader(&plain);
    CodedInputStream in(&reader);
    int left = kMostFields;
    numbers = 0;
    if (!count_fields(in, 0, left, numbers)) {
      return Error{Code::kTooLarge, "the request has more than " + std::to_string(kMostFields) +
                                        " fields; send elements packed or as raw_input_contents"};
    }
    fields = static_cast<std::size_t>(kMostFields - left);
  }
  const std::size_t counted = nbytes + fields * kFieldNbytes + numbers * kNumberNbytes;
  if (!share.grow(counted)) return share.budget()->refusal("the message", counted);
  return parse_any(plain, message);
}

Failure write(const google::protobuf::MessageLite& message, Bytes& bytes) {
  const std::size_t nbytes = message.ByteSizeLong();
  if (Failure wrong = check_length(nbytes)) return wrong;
  ::grpc::Slice slice(nbytes);
  message.SerializeWithCachedSizesToArray(const_cast<std::uint8_t*>(slice.begin()));
  bytes = Bytes(&slice, 1);
  return std::nullopt;
}

Failure write_infer(const pb::ModelInferResponse& head, const std::vector<Raw>& raw,
                    const std::shared_ptr<const void>& owner, bool streamed, Bytes& bytes) {
  std::size_t nbytes = head.ByteSizeLong();
  for (const Raw& one : raw) nbytes += raw_nbytes(one);
  if (Failure wrong = check_length(nbytes)) return wrong;
  std::string text;
  text.reserve(std::min<std::size_t>(nbytes + 16, 64U << 10));
  if (streamed) append_head(text, kInferResponseTag, nbytes);
  head.AppendToString(&text);
  std::vector<::grpc::Slice> slices;
  for (const Raw& one : raw) {
    append_head(text, kRawTag, one.nbytes);
    if (one.nbytes <= kCopied) {
      text.append(static_cast<const char*>(one.data), one.nbytes);
      continue;
    }
    slices.emplace_back(text);
    text.clear();
    slices.push_back(shared_slice(one, owner));
  }
  if (!text.empty()) slices.emplace_back(text);
  bytes = Bytes(slices.data(), slices.size());
  return std::nullopt;
}

Error said(Code code, const char* sentence) noexcept try { return {code, sentence}; } catch (...) {
  return {code, ""};
}

::grpc::Status to_status(const Error& error) noexcept {
  const auto code = [&] {
    switch (error.code) {
      case Code::kInvalid:
      case Code::kModel: return ::grpc::StatusCode::INVALID_ARGUMENT;
      case Code::kNotReady:
      case Code::kQueueFull:
      case Code::kStopping: return ::grpc::StatusCode::UNAVAILABLE;
      case Code::kUnauthenticated: return ::grpc::StatusCode::UNAUTHENTICATED;
      case Code::kForbidden: return ::grpc::StatusCode::PERMISSION_DENIED;
      case Code::kNotFound: return ::grpc::StatusCode::NOT_FOUND;
      case Code::kTooLarge:
      case Code::kTooMany:
      case Code::kNoMemory: return ::grpc::StatusCode::RESOURCE_EXHAUSTED;
      case Code::kUnsupported: return ::grpc::StatusCode::UNIMPLEMENTED;
      case Code::kDeadline:
      case Code::kRunLimit: return ::grpc::StatusCode::DEADLINE_EXCEEDED;
      case Code::kCancelled: return ::grpc::StatusCode::CANCELLED;
      case Code::kDevice:
      case Code::kInternal: return ::grpc::StatusCode::INTERNAL;
    }
    return ::grpc::StatusCode::INTERNAL;
  }();
  try {
    return ::grpc::Status(code, cut(error.sentence, kLongestStatus));
  } catch (...) {
    return ::grpc::Status(code, "");  // takes no memory
  }
}

}  // namespace hardtack::serve::rpc
