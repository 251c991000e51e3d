#include "server/grpc/server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <climits>
#include <thread>

#include "server/core/background.h"
#include "server/core/contain.h"
#include "server/grpc/acceptor.h"
#include "server/grpc/library_log.h"
#include "server/grpc/service.h"
#include "server/grpc/tls.h"

namespace hardtack::serve::rpc {

namespace {

constexpr int kControlThreads = 8, kParsingThreads = 3;
// gRPC cancels calls that come while it shuts down, without a word; until then they are told to go elsewhere.
constexpr auto kDrainGrace = std::chrono::milliseconds(250);
constexpr std::uint64_t kConnectionsQuota = std::uint64_t{64} << 20;

// What gRPC may hold of messages that it receives: four of the largest, and where there is little memory less.
std::uint64_t quota_of(const GrpcOptions& options, const Budget& budget) {
  return std::min<std::uint64_t>(4 * options.max_message, budget.limit() / 8) + kConnectionsQuota;
}

void set_limits(const GrpcOptions& options, std::uint64_t most, ::grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<std::uint64_t>({options.max_message, most, INT_MAX})));
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // see inflate.h
  // gRPC reads a message to its end before it looks at the size; beyond the quota it ends calls instead.
  ::grpc::ResourceQuota quota("hardtack");
  quota.Resize(most);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(options.max_metadata));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_calls);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(std::chrono::milliseconds(options.handshake_timeout).count()));
  // A client that vanished without a word is noticed, and its calls are cancelled.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // Clients may ask whether we are alive as often as every 5 s, also without calls.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace

struct GrpcServer::State {
  State(const GrpcOptions& options_, Repository& repository, SharedMemory& memory, Access& access, Log& log)
      : options(options_),
        quota(repository.budget()),
        parsing(kParsingThreads, log),
        shared(options, repository, memory, access, parsing, log),
        control(kControlThreads, log) {
    quota.charge(quota_of(options, repository.budget()));
  }

  const GrpcOptions options;
  Share quota;
  Background parsing;
  Shared shared;
  Background control;
  std::unique_ptr<::grpc::Service> service = make_service(shared, control);
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> entrance;
  std::unique_ptr<::grpc::Server> server;
  std::thread drainer;
  std::atomic<bool> drained{false};
};

GrpcServer::GrpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Outcome<std::unique_ptr<GrpcServer>> GrpcServer::start(const GrpcOptions& options, Repository& repository,
                                                       SharedMemory& shared, Access& access, Log& log) {
  set_library_log(&log);
  auto secrets = credentials(options);
  if (!secrets.ok()) return secrets.error();
  auto state = std::make_unique<State>(options, repository, shared, access, log);
  auto acceptor = Acceptor::listen(options.host, options.port, options.max_connections, log);
  if (!acceptor.ok()) return acceptor.error();
  ::grpc::ServerBuilder builder;
  set_limits(options, state->quota.nbytes(), builder);
  using From = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  state->entrance = builder.experimental().AddExternalConnectionAcceptor(From::FROM_FD, *secrets);
  builder.RegisterService(state->service.get());
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return Error{Code::kInternal, "gRPC does not start; the log says more"};
  state->acceptor = std::move(*acceptor);
  state->acceptor->start([entrance = state->entrance.get()](int listener, int file) {
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = file;
    entrance->HandleNewConnection(&connection);
  });
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(state)));
}

GrpcServer::~GrpcServer() { stop(); }

std::uint16_t GrpcServer::port() const { return state_->acceptor->port(); }

void GrpcServer::drain(Clock::time_point until) {
  if (state_->drainer.joinable()) return;
  const auto left = until - Clock::now();
  state_->drainer = std::thread([state = state_.get(), left] {
    const auto deadline =
        std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
    state->acceptor->close();
    while (!contain(state->shared.log, "the end of all streams", [state] { state->shared.end_streams(); })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_until(
        std::min<std::chrono::system_clock::time_point>(deadline, std::chrono::system_clock::now() + kDrainGrace));
    state->server->Shutdown(deadline);
    state->drained = true;
  });
}

bool GrpcServer::drained() const { return state_->drained; }

void GrpcServer::stop() {
  if (state_->server == nullptr) return;
  drain(Clock::now());
  state_->drainer.join();
  state_->server.reset();
  set_library_log(nullptr);
}

void GrpcServer::write_metrics(MetricsPage& page) const {
  const Shared::Counts& counts = state_->shared.counts;
  page.family("hardtack_grpc_calls_total", "counter", "gRPC calls by the code of their status; a stream is one.");
  for (std::size_t code = 0; code < counts.by_status.size(); ++code) {
    const std::uint64_t count = counts.by_status[code];
    if (count > 0) page.sample("hardtack_grpc_calls_total", label("code", std::to_string(code)), count);
  }
  page.family("hardtack_grpc_calls", "gauge", "Open gRPC calls.");
  const auto sample = [&](const char* kind, std::int64_t value) {
    page.sample("hardtack_grpc_calls", label("kind", kind),
                static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)));
  };
  sample("unary", counts.calls);
  sample("stream", counts.streams);
  const Acceptor::Counts& connections = state_->acceptor->counts();
  page.family("hardtack_grpc_connections", "gauge", "Open gRPC connections.");
  page.sample("hardtack_grpc_connections", "", std::uint64_t{connections.open});
  page.family("hardtack_grpc_connections_total", "counter", "gRPC connections that were accepted.");
  page.sample("hardtack_grpc_connections_total", "", connections.accepted.load());
  page.family("hardtack_grpc_connections_refused_total", "counter", "gRPC connections beyond the limit.");
  page.sample("hardtack_grpc_connections_refused_total", "", connections.refused.load());
  page.family("hardtack_grpc_messages_total", "counter", "Messages of gRPC calls.");
  page.sample("hardtack_grpc_messages_total", "direction=\"in\"", counts.messages_in.load());
  page.sample("hardtack_grpc_messages_total", "direction=\"out\"", counts.messages_out.load());
  page.family("hardtack_grpc_message_bytes_total", "counter", "Bytes of messages, inflated.");
  page.sample("hardtack_grpc_message_bytes_total", "direction=\"in\"", counts.bytes_in.load());
  page.sample("hardtack_grpc_message_bytes_total", "direction=\"out\"", counts.bytes_out.load());
}

}  // namespace hardtack::serve::rpc
