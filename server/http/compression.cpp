#include "server/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "server/core/tensor.h"
#include "server/core/text.h"

namespace hardtack::serve::http {

namespace {

constexpr int kGzip = 15 + 16, kZlib = 15;
constexpr std::size_t kStep = std::size_t{1} << 30;  // zlib counts with 32 bits

uInt step(std::size_t nbytes) { return static_cast<uInt>(std::min(nbytes, kStep)); }

class Inflater {
 public:
  explicit Inflater(int bits) { ready_ = ::inflateInit2(&stream_, bits) == Z_OK; }
  ~Inflater() {
    if (ready_) ::inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream* stream() { return ready_ ? &stream_ : nullptr; }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

// Memory whose byte `lead` is aligned to 64: the tensors after the JSON part start there.
struct Block {
  std::shared_ptr<std::byte> owner;
  std::byte* start = nullptr;
  std::size_t capacity = 0;
  std::size_t most = 0;  // that it had, or asked for: beside what is there, until it is copied

  bool grow(std::size_t lead, std::size_t used, std::size_t wanted, Budget& budget) {
    const std::size_t pad = (64 - lead % 64) % 64;
    most = capacity + wanted + pad;
    std::shared_ptr<std::byte> fresh = budget.allocate(wanted + pad);
    if (fresh == nullptr) return false;
    if (used > 0) std::memcpy(fresh.get() + pad, start, used);
    owner = std::move(fresh);
    start = owner.get() + pad;
    capacity = wanted;
    return true;
  }
};

Error too_large(std::size_t limit) {
  return {Code::kTooLarge, "the body inflates to more than this server's limit of " + std::to_string(limit) + " bytes"};
}

}  // namespace

Failure decompress(HttpRequest& request, std::size_t json_nbytes, std::size_t limit, Budget& budget) {
  const std::string& encoding = request.content_encoding;
  if (encoding.empty() || encoding == "identity") return std::nullopt;
  if (encoding != "gzip" && encoding != "deflate") {
    return Error{Code::kUnsupported,
                 "Content-Encoding \"" + cut(encoding, 64) + "\" is not known; use gzip or deflate"};
  }
  std::size_t read = 0, written = 0;
  Block out;
  const auto broken = [&] {
    return Error{Code::kInvalid, "the body is no sound " + encoding + " stream: it breaks after " +
                                     std::to_string(read) + " of " + std::to_string(request.body_nbytes) + " bytes"};
  };
  const auto no_memory = [&] { return budget.refusal("the inflated body", out.most); };
  Inflater inflater(encoding == "gzip" ? kGzip : kZlib);
  z_stream* z = inflater.stream();
  if (z == nullptr ||
      !out.grow(json_nbytes, 0, std::min(limit, std::max<std::size_t>(request.body_nbytes * 4, 4096)), budget)) {
    return no_memory();
  }
  while (true) {
    if (written == out.capacity) {
      if (out.capacity == limit) {
        // Full to the limit: fine only if the stream ends exactly here.
        std::byte one{};
        z->next_in = reinterpret_cast<Bytef*>(request.body + read);
        z->avail_in = step(request.body_nbytes - read);
        z->next_out = reinterpret_cast<Bytef*>(&one);
        z->avail_out = 1;
        const int result = ::inflate(z, Z_NO_FLUSH);
        if (z->avail_out == 0) return too_large(limit);
        read = request.body_nbytes - z->avail_in;
        if (result != Z_STREAM_END) return broken();
        break;
      }
      if (!out.grow(json_nbytes, written, std::min(limit, out.capacity * 2), budget)) return no_memory();
    }
    const uInt in = step(request.body_nbytes - read), room = step(out.capacity - written);
    z->next_in = reinterpret_cast<Bytef*>(request.body + read);
    z->avail_in = in;
    z->next_out = reinterpret_cast<Bytef*>(out.start + written);
    z->avail_out = room;
    const int result = ::inflate(z, Z_NO_FLUSH);
    read += in - z->avail_in;
    written += room - z->avail_out;
    if (result == Z_STREAM_END) break;
    if (result == Z_MEM_ERROR) return no_memory();
    if (result != Z_OK || (in == 0 && room > 0)) {
      return broken();
    }
  }
  if (read != request.body_nbytes) {
    return Error{Code::kInvalid, "the body has " + std::to_string(request.body_nbytes - read) +
                                     " bytes after the end of its " + encoding + " stream"};
  }
  request.owner = std::move(out.owner);
  request.body = out.start;
  request.body_nbytes = written;
  return std::nullopt;
}

const char* accepted_encoding(std::string_view accept) {
  while (!accept.empty()) {
    std::string_view item = accept.substr(0, accept.find(','));
    accept.remove_prefix(std::min(accept.size(), item.size() + 1));
    const std::string_view quality = item.size() > item.find(';') ? item.substr(item.find(';')) : std::string_view();
    item = item.substr(0, item.find(';'));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    const bool refused = quality.find("q=0") != quality.npos && quality.find_first_of("123456789") == quality.npos;
    if (refused) continue;
    if (item == "gzip" || item == "*") return "gzip";
    if (item == "deflate") return "deflate";
    if (item == "identity") return nullptr;
  }
  return nullptr;
}

void compress(HttpReply& reply, const char* encoding, Budget& budget) {
  z_stream z{};
  const int bits = std::strcmp(encoding, "gzip") == 0 ? kGzip : kZlib;
  if (::deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) return;
  std::string out;
  bool good = true;
  Share share(budget);
  try {
    const std::size_t most = ::deflateBound(&z, reply.body_nbytes()) + 64;
    good = share.grow(most);
    if (good) out.resize(most);
  } catch (const std::bad_alloc&) {
    good = false;
  }
  std::size_t written = 0;
  const auto feed = [&](const void* data, std::size_t nbytes, bool last) {
    const auto* at = static_cast<const std::byte*>(data);
    do {
      const uInt in = step(nbytes), room = step(out.size() - written);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(at));
      z.avail_in = in;
      z.next_out = reinterpret_cast<Bytef*>(out.data() + written);
      z.avail_out = room;
      const int result = ::deflate(&z, last && nbytes == in ? Z_FINISH : Z_NO_FLUSH);
      at += in - z.avail_in;
      nbytes -= in - z.avail_in;
      written += room - z.avail_out;
      if (result == Z_STREAM_END) return true;
      if (result != Z_OK && result != Z_BUF_ERROR) return false;
      if (z.avail_out == 0 && written == out.size()) return false;  // deflateBound says that this cannot be
    } while (nbytes > 0 || last);
    return true;
  };
  good = good && feed(reply.text.data(), reply.text.size(), reply.parts.empty());
  for (std::size_t i = 0; good && i < reply.parts.size(); ++i) {
    good = feed(reply.parts[i].data, reply.parts[i].nbytes, i + 1 == reply.parts.size());
  }
  ::deflateEnd(&z);
  if (!good) return;
  out.resize(written);
  reply.text = std::move(out);
  reply.share = std::move(share);
  reply.parts.clear();
  reply.owner.reset();
  reply.encoding = encoding;
}

}  // namespace hardtack::serve::http
