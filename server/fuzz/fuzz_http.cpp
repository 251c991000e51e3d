// Requests of HTTP/1.1 as they come from the wire: head, routes, JSON, binary tensors, compression, runs and replies. What follows the head
// is the body, whatever its Content-Length says: the connection has seen to that.
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "server/fuzz/serving.h"
#include "server/http/infer_json.h"
#include "server/http/routes.h"
#include "server/http/wire.h"

namespace {

using namespace hardtack::serve;
namespace beast = boost::beast;

constexpr std::size_t kMostHeader = 16U << 10, kMostBody = 64U << 10;

void check(const http::HttpReply& reply) {
  using nlohmann::json;
  fuzz::require(http::head_of(reply, !reply.close).size() < 1024, "a reply has a head");
  volatile unsigned sum = 0;
  for (const http::Part& part : reply.parts) {
    for (std::size_t i = 0; i < part.nbytes; ++i) sum = sum + static_cast<unsigned>(part.data[i]);
  }
  if (reply.encoding != nullptr || reply.text.rfind('#', 0) == 0) return;  // compressed, or metrics
  const json body = json::parse(reply.text, nullptr, false);
  fuzz::require(!body.is_discarded(), "a reply is JSON", reply.text);
  const bool is_error = reply.status != 200;
  fuzz::require(!is_error || std::strcmp(http::reason_of(reply.status), "Internal Server Error") != 0,
                "no request makes an internal error", reply.text);
  if (is_error) fuzz::require_sentence(body.at("error").get<std::string>());
}

http::Routes& routes() {
  static fuzz::Serving& all = fuzz::serving();
  static Background here(0, *all.log);
  static http::Routes* const only =
      new http::Routes(*all.repository, all.shared, *all.access, *all.log, kMostBody, here, here, [](MetricsPage&) {});
  return *only;
}

// The numbers of a sound JSON request reach typed memory or are refused; what was read is written as it came.
void read_numbers(std::string_view text) {
  auto json = http::read_infer_json(text, fuzz::serving().budget);
  if (!json.ok()) return fuzz::require_sentence(json.error().sentence);
  for (const http::JsonInput& input : json->inputs) {
    const auto dtype = dtype_from_protocol(input.datatype);
    if (!dtype) continue;
    auto elements = http::to_elements(input, *dtype, fuzz::serving().budget);
    if (!elements.ok()) {
      fuzz::require_sentence(elements.error().sentence);
      continue;
    }
    const auto* memory = elements->memory.get();
    fuzz::touch({input.name, *dtype, input.shape, memory, elements->nbytes});
    std::string written;
    const Output output{input.name, *dtype, input.shape, memory, elements->nbytes};
    Share share(fuzz::serving().budget);
    if (http::append_elements(written, output, share)) continue;
    fuzz::require(nlohmann::json::parse(written, nullptr, false).is_array(), "elements are a list", written);
  }
}

// Here, as a rule; a session whose memory is looked after at that moment is another thread's to take.
void answer(http::HttpRequest&& request) {
  struct Answers {
    std::mutex mutex;
    std::condition_variable came;
    int count = 0;
    http::HttpReply first;
  };
  const auto answers = std::make_shared<Answers>();
  routes().handle(std::move(request), [answers](http::HttpReply&& reply) {
    const std::lock_guard<std::mutex> lock(answers->mutex);
    if (++answers->count == 1) answers->first = std::move(reply);
    answers->came.notify_all();
  });
  std::unique_lock<std::mutex> lock(answers->mutex);
  answers->came.wait_for(lock, std::chrono::seconds(10), [&] { return answers->count > 0; });
  fuzz::require(answers->count == 1, "a request is answered once");
  check(answers->first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  beast::http::request_parser<beast::http::empty_body> parser;
  parser.header_limit(kMostHeader);
  parser.body_limit(UINT64_MAX);
  beast::error_code error;
  const std::size_t head_nbytes = parser.put(boost::asio::buffer(data, nbytes), error);
  if (error == beast::http::error::need_more) return 0;
  if (error) {
    if (auto reply = http::reply_to_error(error, kMostHeader, kMostBody)) check(*reply);
    return 0;
  }
  const auto& head = parser.get().base();
  if (auto refusal = http::refuse_head(head, parser.chunked(), parser.content_length().value_or(0), kMostBody)) {
    check(*refusal);
    return 0;
  }
  http::HttpRequest request = http::request_of(head);
  request.body_nbytes = std::min(nbytes - head_nbytes, kMostBody);
  const std::shared_ptr<std::byte> body(new std::byte[request.body_nbytes], std::default_delete<std::byte[]>());
  request.owner = body;
  request.body = body.get();
  if (request.body_nbytes > 0) std::memcpy(request.body, data + head_nbytes, request.body_nbytes);
  request.cancelled = std::make_shared<std::atomic<bool>>(false);
  read_numbers(request.text());
  request.run_here = RunHere::kYes;
  answer(std::move(request));
  return 0;
}
