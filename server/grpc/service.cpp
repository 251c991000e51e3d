#include "server/grpc/service.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>

#include <algorithm>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "server/core/contain.h"
#include "server/grpc/infer.h"
#include "server/grpc/stream.h"

namespace hardtack::serve::rpc {

namespace {

using Context = ::grpc::CallbackServerContext;

// gRPC 1.51 polls with half as many threads as there are cores, from 2 to 16; one is always left for the others.
int run_here_slots() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 2, 2U, 16U)) - 1; }

// What a method asks for. Shared memory is part of inference.
Role role_of(std::string_view method) {
  if (method == "ServerLive" || method == "ServerReady") return Role::kNone;
  if (method == "ModelInfer") return Role::kInfer;
  if (method == "RepositoryModelLoad" || method == "RepositoryModelUnload") return Role::kControl;
  return method.find("egister") != method.npos ? Role::kInfer : Role::kAny;
}

// A call with one message and one reply. To gRPC it is a stream, which is the same on the wire: of other calls gRPC says
// nothing until their message is there. What happens to a call throws nothing: gRPC would swallow it, and the call never end.
class UnaryCall : public ::grpc::ServerBidiReactor<Bytes, Bytes>, private Waiting::Call {
 public:
  UnaryCall(Shared& shared, Context* context, const char* method)
      : shared_(shared), context_(context), method_(method) {}

  // Once it is made as a whole, the first that is done to this.
  void begin() noexcept {
    ++shared_.counts.calls;
    try {
      auto caller = admit(shared_.access, *context_, role_of(method_));
      if (!caller.ok()) return finish(caller.error());
      caller_ = std::move(*caller);
      shared_.waiting.enter(*this);
    } catch (...) {
      return finish(from_exception());
    }
    StartRead(&in_);
  }

  void OnReadDone(bool ok) final {
    if (!shared_.waiting.leave(*this)) return;
    if (!ok) return finish(said(Code::kInvalid, "the call ended without a message"));
    try {
      took();
      start();
    } catch (...) {  // before anything was handed over
      finish(from_exception());
    }
  }
  void OnDone() override {
    --shared_.counts.calls;
    delete this;
  }

  // Once, as the last that is done to this.
  void finish(Failure failed) noexcept {
    ::grpc::Status status = failed ? to_status(*failed) : ::grpc::Status();
    shared_.ended(*context_, method_, arrived_, status);
    if (!failed) {
      ++shared_.counts.messages_out;
      shared_.counts.bytes_out += out_.Length();
    }
    const bool well = contain(shared_.log, "the end of a call", [&] {
      failed ? Finish(std::move(status)) : StartWriteAndFinish(&out_, {}, std::move(status));
    });
    if (!well) context_->TryCancel();  // gRPC itself found no memory: the client is told so much, and the call is lost
  }

 protected:
  // The message is there: sees to it that finish() is called. What it throws, it throws before.
  virtual void start() = 0;

  Shared& shared_;
  Context* context_;
  const char* method_;
  Caller caller_;
  Bytes in_, out_;
  const Clock::time_point arrived_ = Clock::now();

 private:
  void give_up() noexcept final { finish(said(Code::kDeadline, "the request's message did not arrive in time")); }

  void took() {
    ++shared_.counts.messages_in;
    if (in_.Valid()) shared_.counts.bytes_in += in_.Length();
    constexpr ::grpc_compression_level kLevels[] = {GRPC_COMPRESS_LEVEL_NONE, GRPC_COMPRESS_LEVEL_LOW,
                                                    GRPC_COMPRESS_LEVEL_MED, GRPC_COMPRESS_LEVEL_HIGH};
    const auto level = static_cast<std::size_t>(shared_.options.compression);
    if (level > 0) context_->set_compression_level(kLevels[level]);
  }
};

class InferCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

  void OnCancel() override {
    // A deadline that passed cancels the call, too; the core knows the deadline itself.
    if (Clock::now() < deadline_) *cancelled_ = true;
  }

 private:
  void start() override {
    if (shared_.draining) return finish(Error{Code::kStopping, "the server is shutting down"});
    if (!takes_long(in_)) return run(true);
    shared_.parsing.post(caller_.number, [this] {
      try {
        run(false);
      } catch (...) {  // before anything was handed over
        finish(from_exception());
      }
    });
  }

  void run(bool on_grpc_thread) {
    Request request;
    request.arrived = Clock::now();
    request.owner = caller_.name;
    const Failure wrong = read_request(in_, shared_.read_room(), request, *deliveries_);
    in_.Clear();
    if (wrong) return finish(shared_.repository.why_refused(request, *wrong));
    request.deadline = std::min(request.deadline, deadline_);
    request.cancelled = cancelled_;
    request.client = caller_.number;
    const bool early = !request.sequence.id.empty();
    if (early) request.delivery = delivery_of(deliveries_, shared_.memory, false, out_);
    std::optional<Slots::Taken> slot;
    if (on_grpc_thread) request.run_here = slot.emplace(shared_.slots) ? RunHere::kYes : RunHere::kIfShort;
    // finish() may come before infer() returns, and end this
    shared_.repository.infer(std::move(request),
                             [this, early](Response&& response) { reply(std::move(response), early); });
  }

  void reply(Response&& response, bool early) {
    if (early) return finish(std::move(response.error));  // else it is made
    Failure failed;
    try {
      failed = write_reply(std::move(response), *deliveries_, shared_.memory, false, out_);
    } catch (...) {
      failed = from_exception();
    }
    finish(std::move(failed));
  }

  const Clock::time_point deadline_ = deadline_of(*context_);
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<Deliveries> deliveries_ = std::make_shared<Deliveries>();
};

// Everything but inference: `In` and `Out` are the messages.
template <typename In, typename Out>
class PageCall final : public UnaryCall {
 public:
  // Where it takes long, on a thread of `control`.
  PageCall(Shared& shared, Context* context, const char* method, Background* control)
      : UnaryCall(shared, context, method), control_(control) {}

 private:
  void start() override {
    if (Failure wrong = parse(in_, message_, shared_.repository.budget())) return finish(std::move(wrong));
    if (control_ == nullptr) return finish(respond());
    control_->post(caller_.number, [this] { finish(respond()); });
  }

  Failure respond() noexcept try {
    Out out;
    const Answers answers(shared_.repository, shared_.memory, caller_);
    if (Failure failed = answers.answer(message_, out)) return failed;
    return write(out, out_);
  } catch (...) {
    return from_exception();
  }

  Background* control_;
  In message_;
};

template <typename Call>
Call* begun(std::unique_ptr<Call> call) {
  call->begin();
  return call.release();
}

// Every method takes its message as bytes: only so a message that cannot be read gets a status and a sentence of ours.
class Service final : public ::grpc::Service {
 public:
  Service(Shared& shared, Background& control) : shared_(shared) {
    add("ModelInfer",
        [this](Context* context) { return begun(std::make_unique<InferCall>(shared_, context, "ModelInfer")); });
    add("ModelStreamInfer", [this](Context* context) { return StreamCall::start(shared_, context); });
    // NOLINTBEGIN(bugprone-macro-parentheses): the name of a template cannot stand in parentheses
#define HARDTACK_METHOD(name, where) add_page<pb::name##Request, pb::name##Response>(#name, where)
    // NOLINTEND(bugprone-macro-parentheses)
    HARDTACK_METHOD(ServerLive, nullptr);
    HARDTACK_METHOD(ServerReady, nullptr);
    HARDTACK_METHOD(ModelReady, nullptr);
    HARDTACK_METHOD(ServerMetadata, nullptr);
    HARDTACK_METHOD(ModelMetadata, nullptr);
    HARDTACK_METHOD(ModelConfig, nullptr);
    HARDTACK_METHOD(ModelStatistics, nullptr);
    HARDTACK_METHOD(RepositoryIndex, nullptr);
    HARDTACK_METHOD(RepositoryModelLoad, &control);
    HARDTACK_METHOD(RepositoryModelUnload, &control);
    HARDTACK_METHOD(SystemSharedMemoryStatus, nullptr);
    HARDTACK_METHOD(SystemSharedMemoryRegister, nullptr);
    HARDTACK_METHOD(SystemSharedMemoryUnregister, nullptr);
    HARDTACK_METHOD(CudaSharedMemoryStatus, nullptr);
    HARDTACK_METHOD(CudaSharedMemoryRegister, nullptr);
    HARDTACK_METHOD(CudaSharedMemoryUnregister, nullptr);
#undef HARDTACK_METHOD
  }

 private:
  using Reactor = ::grpc::ServerBidiReactor<Bytes, Bytes>;

  void add(const char* name, std::function<Reactor*(Context*)> begin) {
    names_.push_back(std::string("/inference.GRPCInferenceService/") + name);
    using Method = ::grpc::internal::RpcServiceMethod;
    AddMethod(new Method(names_.back().c_str(), Method::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(static_cast<int>(names_.size()) - 1,
                          new ::grpc::internal::CallbackBidiHandler<Bytes, Bytes>(std::move(begin)));
  }

  template <typename In, typename Out>
  void add_page(const char* name, Background* control) {
    add(name, [this, name, control](Context* context) {
      return begun(std::make_unique<PageCall<In, Out>>(shared_, context, name, control));
    });
  }

  Shared& shared_;
  std::list<std::string> names_;  // gRPC keeps their addresses
};

}  // namespace

Shared::Shared(const GrpcOptions& options_, Repository& repository_, SharedMemory& memory_, Access& access_,
               Background& parsing_, Log& log_)
    : options(options_),
      repository(repository_),
      memory(memory_),
      access(access_),
      log(log_),
      parsing(parsing_),
      waiting(options_.message_timeout),
      slots(run_here_slots()) {}

ReadRoom Shared::read_room() {
  return {options.max_message, memory, repository.budget(),
          [this](Request& request) { return repository.check(request); }};
}

Outcome<Caller> admit(Access& access, const ::grpc::CallbackServerContext& context, Role role) {
  Caller caller;
  if (access.asks()) {
    const auto shown = context.client_metadata().find("authorization");
    const bool none = shown == context.client_metadata().end();
    auto known = access.admit(none ? "" : std::string_view(shown->second.data(), shown->second.size()), role);
    if (!known.ok()) return known.error();
    caller = std::move(*known);
  }
  caller.number = caller.client(std::hash<std::string>()(context.peer()));
  return caller;
}

void Shared::add(const std::shared_ptr<StreamCall>& stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!draining) {
      streams_.insert(stream);
      return;
    }
  }
  stream->end();
}

void Shared::remove(const std::shared_ptr<StreamCall>& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.erase(stream);
}

void Shared::end_streams() {
  std::unordered_set<std::shared_ptr<StreamCall>> streams;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining = true;
    streams = streams_;
  }
  for (const auto& stream : streams) stream->end();
}

void Shared::ended(const ::grpc::CallbackServerContext& context, const char* method, Clock::time_point arrived,
                   const ::grpc::Status& status) noexcept {
  const auto code = static_cast<std::size_t>(status.error_code());
  ++counts.by_status[std::min(code, counts.by_status.size() - 1)];
  if (!options.log_requests) return;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - arrived).count();
  contain(log, "a line of the log", [&] {
    const std::string peer = context.peer(), error = status.error_message();
    log.write(Level::kInfo, "call",
              {{"method", method}, {"peer", peer}, {"status", code}, {"error", error}, {"ms", ms}});
  });
}

Clock::time_point deadline_of(const ::grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  const auto now = std::chrono::system_clock::now();
  if (deadline - now > std::chrono::hours(24 * 365)) return Clock::time_point::max();
  return Clock::now() + (deadline - now);
}

std::unique_ptr<::grpc::Service> make_service(Shared& shared, Background& control) {
  return std::make_unique<Service>(shared, control);
}

}  // namespace hardtack::serve::rpc
