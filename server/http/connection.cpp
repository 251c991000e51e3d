#include "server/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

#include "server/core/background.h"
#include "server/core/contain.h"
#include "server/http/body.h"
#include "server/http/chunked_body.h"
#include "server/http/wire.h"

namespace hardtack::serve::http {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Socket = asio::ip::tcp::socket;
using Tls = asio::ssl::stream<Socket>;
using Error = beast::error_code;
using HeadParser = beast::http::request_parser<beast::http::empty_body>;

// Trailers are passed over: Beast would keep them beside the head, and throws where one is long.
class ChunkParser : public beast::http::request_parser<CountedBody> {
 public:
  explicit ChunkParser(HeadParser&& head) : beast::http::request_parser<CountedBody>(std::move(head)) {}

 private:
  void on_field_impl(beast::http::field, beast::string_view, beast::string_view, Error& error) override { error = {}; }
};

constexpr std::size_t kReadStep = 64U << 10;
constexpr std::size_t kBodyStep = std::size_t{1} << 20;  // of a body, whose memory is counted as it comes
constexpr std::size_t kMostLingering = std::size_t{64} << 20;
constexpr auto kLinger = std::chrono::seconds(2);

Socket& socket_of(Socket& socket) { return socket; }
Socket& socket_of(Tls& stream) { return stream.next_layer(); }

template <typename Stream>
class Connection : public Swept, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Args>
  explicit Connection(SharedState& shared, Args&&... args) : shared_(shared), stream_(std::forward<Args>(args)...) {
    Error ignored;
    socket_of(stream_).set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_of(stream_).non_blocking(true, ignored);
    buffer_.max_size(shared.options.max_header + kReadStep);  // of a chunk's head and of trailers, too
    file = socket_of(stream_).native_handle();
  }
  ~Connection() override { shared_.remove(this); }

  void start() {
    enter(Phase::kReading, shared_.options.header_timeout);
    if constexpr (std::is_same_v<Stream, Tls>) {
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](Error error) {
        if (!error) self->attempt([&] { self->next_request(); });
      });
    } else {
      next_request();
    }
  }

 private:
  enum Handover { kNobody, kHandled, kReplied };

  // One step, on whatever thread: what it throws, for want of memory as a rule, ends this connection and nothing else.
  template <typename Step>
  void attempt(const Step& step) noexcept {
    if (!contain(shared_.log, "a connection", step)) ::shutdown(file, SHUT_RDWR);  // a watch may hold it
  }

  void enter(Phase next, Clock::duration longest) {
    until = (Clock::now() + longest).time_since_epoch().count();
    phase = next;
  }

  Clock::duration transfer_time(std::size_t nbytes) const {
    return shared_.options.stall_timeout + std::chrono::seconds(nbytes >> 16U);
  }

  // --- reading ---

  void next_request() {
    parser_.emplace();
    parser_->header_limit(shared_.options.max_header);
    parser_->body_limit(UINT64_MAX);  // refuse_head() says it better
    body_.reset();
    if (buffer_.size() == 0) {
      enter(Phase::kIdle, shared_.options.idle_timeout);
      return read_some();
    }
    // A pipelined request: not from here, or a long pipeline would fill the stack.
    enter(Phase::kReading, shared_.options.header_timeout);
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this()] { self->attempt([&] { self->parse_head(); }); });
  }

  void read_some() {
    stream_.async_read_some(buffer_.prepare(std::min<std::size_t>(kReadStep, shared_.options.max_header + 4096)),
                            [self = this->shared_from_this()](Error error, std::size_t n) {
                              self->attempt([&] { self->read(error, n); });
                            });
  }

  void read(Error error, std::size_t n) {
    if (error) return read_failed(error);
    if (phase == Phase::kIdle) enter(Phase::kReading, shared_.options.header_timeout);
    buffer_.commit(n);
    parse_head();
  }

  void parse_head() {
    Error error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error == beast::http::error::need_more) {
      if (buffer_.size() <= shared_.options.max_header) return read_some();
      error = beast::http::error::header_limit;
    }
    if (error) return refuse(reply_to_error(error, shared_.options.max_header, shared_.options.max_body));
    take_head();
  }

  void read_failed(Error error) {
    const bool begun = phase == Phase::kReading && !std::is_same_v<Stream, Tls>;
    if (overdue && begun) {
      HttpReply reply = error_reply(408, "the request did not arrive in time");
      reply.close = true;
      return refuse(std::move(reply));
    }
    if (error == asio::error::eof && begun) return refuse(reply_to_error(beast::http::error::partial_message, 0, 0));
  }

  void take_head() {
    const auto& head = parser_->get().base();
    arrived_ = Clock::now();
    is_head_ = head.method() == beast::http::verb::head;
    keep_alive_ = parser_->get().keep_alive();
    const bool chunked = parser_->chunked();
    const std::uint64_t length = chunked ? 0 : parser_->content_length().value_or(0);
    if (auto refusal = refuse_head(head, chunked, length, shared_.options.max_body)) return refuse(std::move(refusal));
    request_ = request_of(head);
    if (const Failure refused = shared_.routes.admit(request_, chunked || length > 0)) {
      HttpReply reply = error_reply(*refused);
      if (chunked || length > 0) reply.close = true;  // the body is not read
      return reply.close ? refuse(std::move(reply)) : answer(std::move(reply));
    }
    if (expects_continue(head) && buffer_.size() == 0 && (chunked || length > 0)) {
      return asio::async_write(stream_, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25),
                               [self = this->shared_from_this(), chunked, length](Error error, std::size_t) {
                                 if (!error) self->attempt([&] { self->read_body(chunked, length); });
                               });
    }
    read_body(chunked, length);
  }

  void read_body(bool chunked, std::uint64_t length) {
    if (chunked) return read_chunks();
    if (length == 0) return handle();
    if (!begin_body()->reserve(length) || !body_->count_to(std::min(length, kBodyStep))) return refuse(no_memory());
    const std::size_t here = std::min({static_cast<std::size_t>(length), buffer_.size(), body_->size()});
    std::memcpy(body_->data(), buffer_.data().data(), here);
    buffer_.consume(here);
    enter(Phase::kReading, transfer_time(length));
    read_rest(here, length);
  }

  // What of the body is not there yet, a step after the other.
  void read_rest(std::size_t here, std::size_t length) {
    if (here == length) return take_body();
    const std::size_t step = std::min(length, here + kBodyStep);
    if (!body_->count_to(step)) return refuse(no_memory());
    const std::size_t known = std::min(step - here, buffer_.size());  // the head came with it
    std::memcpy(body_->data() + here, buffer_.data().data(), known);
    buffer_.consume(known);
    asio::async_read(
        stream_, asio::buffer(body_->data() + here + known, step - here - known),
        [self = this->shared_from_this(), here = here + known, step, length](Error error, std::size_t n) {
          self->attempt([&] { error ? self->body_ended(error, here + n, length) : self->read_rest(step, length); });
        });
  }

  void body_ended(Error error, std::size_t here, std::size_t length) {
    if (error != asio::error::eof || overdue) return read_failed(error);
    HttpReply reply = error_reply(400, "the body ended after " + std::to_string(here) + " of the " +
                                           std::to_string(length) + " bytes of its Content-Length");
    reply.close = true;
    refuse(std::move(reply));
  }

  void read_chunks() {
    auto parser = std::make_shared<ChunkParser>(std::move(*parser_));
    parser->body_limit(shared_.options.max_body);
    parser->get().body() = begin_body();
    enter(Phase::kReading, transfer_time(std::size_t{16} << 20));
    beast::http::async_read(stream_, buffer_, *parser,
                            [self = this->shared_from_this(), parser](Error error, std::size_t) {
                              self->attempt([&] { self->chunks_ended(error); });
                            });
  }

  void chunks_ended(Error error) {
    if (overdue) return read_failed(asio::error::eof);
    if (error == boost::system::errc::not_enough_memory) return refuse(no_memory());
    if (error) return refuse(reply_to_error(error, shared_.options.max_header, shared_.options.max_body));
    take_body();
  }

  // Such that the tensors after its JSON part start on a multiple of 64.
  const std::shared_ptr<Body>& begin_body() {
    const std::string& header = request_.json_length;
    const bool number = !header.empty() && header.size() < 18 && header.find_first_not_of("0123456789") == header.npos;
    body_ = std::make_shared<Body>(shared_.budget, number ? std::stoull(header) : 0);
    return body_;
  }

  void take_body() {
    request_.body = body_->data();
    request_.body_nbytes = body_->size();
    request_.owner = std::move(body_);
    handle();
  }

  HttpReply no_memory() const {
    HttpReply reply = error_reply(body_->refusal());
    reply.close = true;
    return reply;
  }

  // --- handling ---

  void handle() {
    shared_.counts.bytes_in += request_.body_nbytes;
    request_.arrived = arrived_;
    cancelled_ = request_.cancelled = std::make_shared<std::atomic<bool>>(false);
    if (shared_.options.log_requests) logged_ = request_.target.substr(0, 500);
    request_.connection = number_;
    phase = Phase::kRunning;
    handover_ = kNobody;
    if (!takes_long(request_) && (!shared_.behind || is_about_health(request_))) return respond(true);
    try {
      const auto self = this->shared_from_this();
      shared_.parsing.post(request_.client(), [self] { self->attempt([&] { self->respond(false); }); },
                           {[self] { return self->has_left(); }, [self] { self->attempt([&] { self->give_up(); }); }});
    } catch (...) {
      reply_ = error_reply(from_exception());
      reply_.close = true;
      write();
    }
  }

  void respond(bool on_io_thread) {
    request_.on_io_thread = on_io_thread;
    if (!on_io_thread && shared_.draining && has_left()) return give_up();
    try {
      std::optional<Slots::Taken> slot;
      if (on_io_thread) request_.run_here = slot.emplace(shared_.slots) ? RunHere::kYes : RunHere::kIfShort;
      shared_.routes.handle(std::move(request_), [self = this->shared_from_this()](HttpReply&& reply) {
        self->reply_ = std::move(reply);
        if (self->handover_.exchange(kReplied) == kHandled) self->attempt([&] { self->write(); });
      });
    } catch (...) {  // while reading the request, as a rule for want of memory: nothing was handed over
      const serve::Error failed = from_exception();
      reply_ = error_reply(failed);
      reply_.close = true;
      handover_ = kReplied;
    }
    if (handover_ != kReplied) watch();
    if (handover_.exchange(kHandled) == kReplied) write();
  }

  // Notes when the client goes away while its request waits. Bytes of a next request end the watch; where those came with
  // this one, the watch goes on for the next.
  void watch() {
    std::atomic_store(&watched_, cancelled_);
    if (watching_.exchange(true)) return;
    socket_of(stream_).async_wait(Socket::wait_read, [self = this->shared_from_this()](Error error) {
      self->watching_ = false;
      if (error || self->phase != Phase::kRunning) return;
      char byte = 0;
      const ssize_t n = ::recv(self->file, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) *std::atomic_load(&self->watched_) = true;
    });
  }

  // Whether the client has ended its side, at least. One that goes on reading gets its answer if nobody else waits then.
  bool has_left() const {
    pollfd socket{file, POLLRDHUP, 0};
    return ::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  void give_up() {
    request_ = HttpRequest{};
    reply_ = error_reply(serve::Error{Code::kCancelled, "the client went away"});
    write();
  }

  // --- writing ---

  // Without a body: the next request follows.
  void answer(HttpReply reply) {
    reply_ = std::move(reply);
    write();
  }

  void refuse(std::optional<HttpReply> reply) {
    if (!reply) return;
    overdue = false;
    linger_ = true;
    reply_ = std::move(*reply);
    arrived_ = Clock::now();
    write();
  }

  void write() {
    if (reply_.drop) {
      ::shutdown(file, SHUT_RDWR);  // a watch may hold the connection
      return finish_log();
    }
    const bool last = reply_.close || !keep_alive_ || shared_.draining;
    reply_.close = last;
    enter(Phase::kWriting, transfer_time(reply_.body_nbytes()));
    head_ = head_of(reply_, !last);
    unsent_.clear();
    unsent_.push_back(asio::buffer(head_));
    if (!is_head_) {
      unsent_.push_back(asio::buffer(reply_.text));
      for (const Part& part : reply_.parts) unsent_.push_back(asio::buffer(part.data, part.nbytes));
    }
    if constexpr (std::is_same_v<Stream, Socket>) {
      Error error;
      drop_sent(stream_.write_some(unsent_, error));
      if (unsent_.empty()) return written();
      if (error && error != asio::error::would_block && error != asio::error::try_again) return finish_log();
    } else {
      join_unsent();
    }
    asio::async_write(stream_, unsent_, [self = this->shared_from_this()](Error error, std::size_t) {
      self->attempt([&] { error ? self->finish_log() : self->written(); });
    });
  }

  void drop_sent(std::size_t n) {
    std::size_t first = 0;
    while (first < unsent_.size() && n >= unsent_[first].size()) n -= unsent_[first++].size();
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(first));
    if (!unsent_.empty()) unsent_.front() += n;
  }

  // TLS sends a record a buffer: head and text go as one.
  void join_unsent() {
    if (is_head_) return;
    head_ += reply_.text;
    unsent_.erase(unsent_.begin());
    unsent_.front() = asio::buffer(head_);
  }

  void finish_log() {
    ++shared_.counts.by_status[static_cast<std::size_t>(reply_.status)];
    if (shared_.options.log_requests) {
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - arrived_).count();
      shared_.log.write(Level::kInfo, "request",
                        {{"target", logged_}, {"status", reply_.status}, {"bytes", reply_.body_nbytes()}, {"ms", ms}});
      logged_.clear();
    }
  }

  void written() {
    finish_log();
    shared_.counts.bytes_out += reply_.body_nbytes();
    const bool last = reply_.close;
    reply_ = HttpReply{};
    if (!last) return next_request();
    enter(Phase::kWriting, kLinger);
    if constexpr (std::is_same_v<Stream, Tls>) {
      stream_.async_shutdown([self = this->shared_from_this()](Error) {});
    } else {
      Error ignored;
      stream_.shutdown(linger_ ? Socket::shutdown_send : Socket::shutdown_both, ignored);
      if (linger_) linger(0);
    }
  }

  // The client may still be sending what was refused: closing at once would reset the connection before it reads why.
  void linger(std::size_t read) {
    if (read > kMostLingering || overdue) return reset();
    buffer_.consume(buffer_.size());
    stream_.async_read_some(buffer_.prepare(kReadStep),
                            [self = this->shared_from_this(), read](Error error, std::size_t n) {
                              if (!error || self->overdue) self->attempt([&] { self->linger(read + n); });
                            });
  }

  // Where its window is closed, a client that still sends would else learn only after a minute that nobody reads.
  void reset() {
    Error ignored;
    stream_.set_option(asio::socket_base::linger(true, 0), ignored);
    stream_.close(ignored);
  }

  SharedState& shared_;
  const std::uint64_t number_ = ++shared_.counts.connections;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<HeadParser> parser_;
  std::shared_ptr<Body> body_;
  HttpRequest request_;
  HttpReply reply_;
  std::string head_, logged_;
  std::vector<asio::const_buffer> unsent_;
  Clock::time_point arrived_;
  std::shared_ptr<std::atomic<bool>> cancelled_;  // of the request that runs
  std::shared_ptr<std::atomic<bool>> watched_;    // of the last that is watched; read by the watch, on any thread
  std::atomic<int> handover_{kNobody};
  std::atomic<bool> watching_{false};
  bool keep_alive_ = true, is_head_ = false, linger_ = false;
};

template <typename Stream, typename... Args>
void begin(SharedState& shared, Args&&... args) {
  auto connection = std::make_shared<Connection<Stream>>(shared, std::forward<Args>(args)...);
  shared.add(connection);
  connection->start();
}

}  // namespace

void serve(Socket socket, asio::ssl::context* tls, SharedState& shared) {
  if (tls == nullptr) {
    begin<Socket>(shared, std::move(socket));
  } else {
    begin<Tls>(shared, std::move(socket), *tls);
  }
}

void turn_away(Socket& socket, std::size_t limit) {
  HttpReply reply =
      error_reply(503, "this server has " + std::to_string(limit) + " connections, and no more; try again later");
  const std::string text = head_of(reply, false) + reply.text;
  Error ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(Socket::shutdown_send, ignored);
}

}  // namespace hardtack::serve::http
