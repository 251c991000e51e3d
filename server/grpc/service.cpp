#include "server/grpc/service.h"

#include <algorithm>
#include <new>
#include <thread>

#include "inference.grpc.pb.h"
#include "server/grpc/infer.h"
#include "server/grpc/stream.h"

namespace hardtack::serve::rpc {

namespace {

using Context = ::grpc::CallbackServerContext;
using Reactor = ::grpc::ServerUnaryReactor;

// gRPC 1.51 polls with half as many threads as there are cores, from 2 to 16; one is always left for the others.
int run_here_slots() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 2, 2U, 16U)) - 1; }

Error no_memory() { return {Code::kNoMemory, "no memory for the request"}; }

// A unary call, from its message to its status.
class UnaryCall : public Reactor {
 public:
  UnaryCall(Shared& shared, Context* context, const char* method, Bytes* out)
      : shared_(shared), context_(context), method_(method), out_(out) {
    ++shared_.counts.calls;
  }
  void OnDone() override {
    --shared_.counts.calls;
    delete this;
  }

  // Once, as the last that is done to this.
  void finish(Failure failed) {
    ::grpc::Status status = failed ? to_status(*failed) : ::grpc::Status::OK;
    if (!failed) {
      ++shared_.counts.messages_out;
      shared_.counts.bytes_out += out_->Length();
    }
    shared_.ended(*context_, method_, arrived_, status);
    Finish(std::move(status));
  }

 protected:
  Shared& shared_;
  Context* context_;
  const char* method_;
  Bytes* out_;
  const Clock::time_point arrived_ = Clock::now();
};

class InferCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

  void OnCancel() override {
    // A deadline that passed cancels the call, too; the core knows the deadline itself.
    if (Clock::now() < deadline_) *cancelled_ = true;
  }

  void start(const Bytes& in) {
    if (shared_.draining) return finish(Error{Code::kStopping, "the server is shutting down"});
    Request request;
    request.arrived = arrived_;
    if (Failure wrong = read_request(in, shared_.options.max_message, shared_.memory, request, deliveries_)) {
      return finish(shared_.repository.why_refused(request, *wrong));
    }
    request.deadline = std::min(request.deadline, deadline_);
    request.cancelled = cancelled_;
    Shared& shared = shared_;  // finish() may come before infer() returns, and end this
    const bool slot = shared.take_slot();
    request.run_here = slot ? RunHere::kYes : RunHere::kIfShort;
    shared.repository.infer(std::move(request), [this](Response&& response) { reply(std::move(response)); });
    if (slot) shared.give_slot();
  }

 private:
  void reply(Response&& response) {
    Failure failed;
    try {
      failed = write_reply(std::move(response), deliveries_, shared_.memory, false, *out_);
    } catch (const std::bad_alloc&) {
      failed = no_memory();
    }
    finish(std::move(failed));
  }

  const Clock::time_point deadline_ = deadline_of(*context_);
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  Deliveries deliveries_;
};

// Every method takes its message as bytes: only so a message that cannot be read gets a status and a sentence of ours.
using pb::GRPCInferenceService;
template <typename T>
using RawServerLive = GRPCInferenceService::WithRawCallbackMethod_ServerLive<T>;
using WithHealth = GRPCInferenceService::WithRawCallbackMethod_ModelReady<
    GRPCInferenceService::WithRawCallbackMethod_ServerReady<RawServerLive<GRPCInferenceService::Service>>>;
using WithPages = GRPCInferenceService::WithRawCallbackMethod_ModelStatistics<
    GRPCInferenceService::WithRawCallbackMethod_ModelConfig<GRPCInferenceService::WithRawCallbackMethod_ModelMetadata<
        GRPCInferenceService::WithRawCallbackMethod_ServerMetadata<WithHealth>>>>;
using WithRepository = GRPCInferenceService::WithRawCallbackMethod_RepositoryModelUnload<
    GRPCInferenceService::WithRawCallbackMethod_RepositoryModelLoad<
        GRPCInferenceService::WithRawCallbackMethod_RepositoryIndex<WithPages>>>;
using WithSystemMemory = GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryUnregister<
    GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryRegister<
        GRPCInferenceService::WithRawCallbackMethod_SystemSharedMemoryStatus<WithRepository>>>;
using WithCudaMemory = GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryUnregister<
    GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryRegister<
        GRPCInferenceService::WithRawCallbackMethod_CudaSharedMemoryStatus<WithSystemMemory>>>;
using RawService = GRPCInferenceService::WithRawCallbackMethod_ModelStreamInfer<
    GRPCInferenceService::WithRawCallbackMethod_ModelInfer<WithCudaMemory>>;

class Service final : public RawService {
 public:
  Service(Shared& shared, Background& background) : shared_(shared), background_(background) {}

  // NOLINTBEGIN(bugprone-macro-parentheses): the name of a template cannot stand in parentheses
#define HARDTACK_METHOD(name, where)                                               \
  Reactor* name(Context* context, const Bytes* in, Bytes* out) override {          \
    return where<pb::name##Request, pb::name##Response>(context, #name, *in, out); \
  }
  // NOLINTEND(bugprone-macro-parentheses)
  HARDTACK_METHOD(ServerLive, here)
  HARDTACK_METHOD(ServerReady, here)
  HARDTACK_METHOD(ModelReady, here)
  HARDTACK_METHOD(ServerMetadata, here)
  HARDTACK_METHOD(ModelMetadata, here)
  HARDTACK_METHOD(ModelConfig, here)
  HARDTACK_METHOD(ModelStatistics, here)
  HARDTACK_METHOD(RepositoryIndex, here)
  HARDTACK_METHOD(RepositoryModelLoad, later)
  HARDTACK_METHOD(RepositoryModelUnload, later)
  HARDTACK_METHOD(SystemSharedMemoryStatus, here)
  HARDTACK_METHOD(SystemSharedMemoryRegister, here)
  HARDTACK_METHOD(SystemSharedMemoryUnregister, here)
  HARDTACK_METHOD(CudaSharedMemoryStatus, here)
  HARDTACK_METHOD(CudaSharedMemoryRegister, here)
  HARDTACK_METHOD(CudaSharedMemoryUnregister, here)
#undef HARDTACK_METHOD

  Reactor* ModelInfer(Context* context, const Bytes* in, Bytes* out) override {
    took(context, *in);
    auto* call = new InferCall(shared_, context, "ModelInfer", out);
    call->start(*in);
    return call;
  }

  ::grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override {
    return StreamCall::start(shared_, context);
  }

 private:
  void took(Context* context, const Bytes& in) {
    ++shared_.counts.messages_in;
    if (in.Valid()) shared_.counts.bytes_in += in.Length();
    constexpr ::grpc_compression_level kLevels[] = {GRPC_COMPRESS_LEVEL_NONE, GRPC_COMPRESS_LEVEL_LOW,
                                                    GRPC_COMPRESS_LEVEL_MED, GRPC_COMPRESS_LEVEL_HIGH};
    const auto level = static_cast<std::size_t>(shared_.options.compression);
    if (level > 0) context->set_compression_level(kLevels[level]);
  }

  template <typename In, typename Out>
  static Failure respond(const Answers& answers, const In& in, Bytes& bytes) try {
    Out out;
    if (Failure failed = answers.answer(in, out)) return failed;
    return write(out, bytes);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }

  template <typename In, typename Out>
  Reactor* here(Context* context, const char* method, const Bytes& bytes, Bytes* out) {
    took(context, bytes);
    auto* call = new UnaryCall(shared_, context, method, out);
    In in;
    Failure failed = parse(bytes, in);
    if (!failed) failed = respond<In, Out>(shared_.answers, in, *out);
    call->finish(std::move(failed));
    return call;
  }

  template <typename In, typename Out>
  Reactor* later(Context* context, const char* method, const Bytes& bytes, Bytes* out) {
    took(context, bytes);
    auto* call = new UnaryCall(shared_, context, method, out);
    In in;
    if (Failure wrong = parse(bytes, in)) {
      call->finish(std::move(wrong));
      return call;
    }
    background_.post(
        [this, call, in = std::move(in), out] { call->finish(respond<In, Out>(shared_.answers, in, *out)); });
    return call;
  }

  Shared& shared_;
  Background& background_;
};

}  // namespace

Shared::Shared(const GrpcOptions& options_, Repository& repository_, SharedMemory& memory_, Log& log_)
    : options(options_),
      repository(repository_),
      memory(memory_),
      log(log_),
      answers(repository_, memory_),
      slots_(run_here_slots()) {}

bool Shared::take_slot() {
  int free = slots_.load();
  while (free > 0 && !slots_.compare_exchange_weak(free, free - 1)) {
  }
  return free > 0;
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
                   const ::grpc::Status& status) {
  const auto code = static_cast<std::size_t>(status.error_code());
  ++counts.by_status[std::min(code, counts.by_status.size() - 1)];
  if (!options.log_requests) return;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - arrived).count();
  log.write(
      Level::kInfo, "call",
      {{"method", method}, {"peer", context.peer()}, {"status", code}, {"error", status.error_message()}, {"ms", ms}});
}

Clock::time_point deadline_of(const ::grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  const auto now = std::chrono::system_clock::now();
  if (deadline - now > std::chrono::hours(24 * 365)) return Clock::time_point::max();
  return Clock::now() + (deadline - now);
}

std::unique_ptr<::grpc::Service> make_service(Shared& shared, Background& background) {
  return std::make_unique<Service>(shared, background);
}

}  // namespace hardtack::serve::rpc
