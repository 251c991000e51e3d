#include "server/grpc/stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "server/core/contain.h"
#include "server/grpc/infer.h"

namespace hardtack::serve::rpc {

namespace {

constexpr std::size_t kAhead = 32;  // requests of a stream that are read and not answered

// The reply to a request that failed.
Bytes error_bytes(const std::string& model, const std::string& id, const std::string& sentence) {
  pb::ModelStreamInferResponse message;
  message.set_error_message(sentence);
  message.mutable_infer_response()->set_model_name(model);
  message.mutable_infer_response()->set_id(id);
  (*message.mutable_infer_response()->mutable_parameters())["triton_final_response"].set_bool_param(true);
  Bytes bytes;
  if (Failure failed = write(message, bytes)) {  // the id alone is too long
    message.Clear();
    message.set_error_message(failed->sentence);
    (void)write(message, bytes);
  }
  return bytes;
}

}  // namespace

StreamCall::StreamCall(Shared& shared, ::grpc::CallbackServerContext* context)
    : shared_(shared), context_(context), deadline_(deadline_of(*context)) {}

StreamCall* StreamCall::start(Shared& shared, ::grpc::CallbackServerContext* context) {
  const std::shared_ptr<StreamCall> call(new StreamCall(shared, context));
  call->self_ = call;
  ++shared.counts.streams;
  try {
    auto caller = admit(shared.access, *context, Role::kInfer);
    if (caller.ok()) {
      call->caller_ = std::move(*caller);
    } else {
      call->closed_ = true;
      call->status_ = to_status(caller.error());
    }
    shared.add(call);
  } catch (...) {
    call->give_up();
  }
  call->pump();
  return call.get();
}

void StreamCall::end() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    status_ = to_status(said(Code::kStopping, "the server is shutting down"));
  }
  pump();
}

// Not even an error can be said: from within `catch`; pump() follows. The stream ends, and answers that come are too late.
void StreamCall::give_up() noexcept {
  const ::grpc::Status status = to_status(from_exception());
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (status_.ok()) status_ = status;
  while (slots_.size() > (writing_ ? 1U : 0U)) slots_.pop_back();
}

// Where gRPC itself finds no memory, the client is told so much, and the stream is lost.
void StreamCall::pump() noexcept {
  const auto self = weak_from_this().lock();
  if (!contain(shared_.log, "a stream", [this] { do_next(); })) context_->TryCancel();
}

// Does what can be done next. Finish comes last and without the lock: it may end this.
void StreamCall::do_next() {
  ::grpc::Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!writing_ && !slots_.empty() && slots_.front()->ready) {
      writing_ = true;
      StartWrite(&slots_.front()->bytes);
    }
    if (!reading_ && !closed_ && slots_.size() < kAhead) {
      reading_ = true;
      incoming_.Clear();
      StartRead(&incoming_);
    }
    if (!closed_ || !slots_.empty() || finished_) return;
    finished_ = true;
    std::swap(status, status_);
  }
  shared_.ended(*context_, "ModelStreamInfer", arrived_, status);
  Finish(std::move(status));
}

void StreamCall::OnReadDone(bool ok) {
  const auto self = shared_from_this();
  std::shared_ptr<Slot> slot;
  try {
    auto made = std::make_shared<Slot>();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ok && !finished_) {
      slots_.push_back(made);
      slot = std::move(made);
    } else {
      closed_ = true;
    }
  } catch (...) {
    give_up();
  }
  if (slot == nullptr || !takes_long(incoming_)) return taken(slot);
  try {
    shared_.parsing.post(caller_.number, [self, slot] { self->taken(slot); });
  } catch (...) {
    refuse(slot, "", "", from_exception().sentence);
    taken(nullptr);
  }
}

void StreamCall::taken(const std::shared_ptr<Slot>& slot) {
  const auto self = shared_from_this();
  if (slot != nullptr) take(slot);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reading_ = false;  // not before: others would read the next message over this one
  }
  pump();
}

// Reads and runs the message in incoming_, which nobody else touches while reading_ is set.
void StreamCall::take(const std::shared_ptr<Slot>& slot) noexcept try {
  ++shared_.counts.messages_in;
  if (incoming_.Valid()) shared_.counts.bytes_in += incoming_.Length();
  auto deliveries = std::make_shared<Deliveries>();
  Request request;
  request.arrived = Clock::now();
  request.owner = caller_.name;
  const bool first = std::exchange(first_, false);  // counted with the call
  if (!first) {
    auto again = admit(shared_.access, *context_, Role::kInfer);
    if (!again.ok()) return refuse(slot, "", "", again.error().sentence);
  }
  if (Failure wrong = read_request(incoming_, shared_.read_room(), request, *deliveries)) {
    const Error said = shared_.repository.why_refused(request, *wrong);
    return refuse(slot, request.model, request.id, said.sentence);
  }
  request.deadline = std::min(request.deadline, deadline_);
  request.cancelled = cancelled_;
  request.client = caller_.number;
  const std::string model = request.model, id = request.id;
  auto early = request.sequence.id.empty() ? nullptr : std::make_shared<Bytes>();
  if (early != nullptr) request.delivery = delivery_of(deliveries, shared_.memory, true, *early);
  shared_.repository.infer(
      std::move(request), [self = shared_from_this(), slot, deliveries, model, id, early](Response&& response) {
        Bytes bytes;
        Failure failed;
        try {
          const bool made = early != nullptr && !response.error;
          if (!made) failed = write_reply(std::move(response), *deliveries, self->shared_.memory, true, bytes);
          if (!failed) self->reply(slot, made ? *early : bytes);
        } catch (...) {
          failed = from_exception();
        }
        if (failed) self->refuse(slot, model, id, failed->sentence);
        self->pump();
      });
} catch (...) {  // before anything was handed over
  refuse(slot, "", "", from_exception().sentence);
}

// A request that failed; the stream goes on, if there is memory to say so.
void StreamCall::refuse(const std::shared_ptr<Slot>& slot, const std::string& model, const std::string& id,
                        const std::string& sentence) noexcept try {
  reply(slot, error_bytes(model, id, sentence));
} catch (...) {
  give_up();
}

void StreamCall::reply(const std::shared_ptr<Slot>& slot, const Bytes& bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  slot->bytes = bytes;  // shares the slices
  slot->ready = true;
}

void StreamCall::OnWriteDone(bool ok) {
  const auto self = shared_from_this();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (ok) {
      ++shared_.counts.messages_out;
      shared_.counts.bytes_out += slots_.front()->bytes.Length();
    } else {
      closed_ = true;
    }
    slots_.pop_front();
  }
  pump();
}

void StreamCall::OnCancel() {
  const auto self = shared_from_this();
  if (Clock::now() < deadline_) *cancelled_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    if (status_.ok()) status_ = to_status(said(Code::kCancelled, "the client went away"));
  }
  pump();
}

void StreamCall::OnDone() {
  --shared_.counts.streams;
  shared_.remove(self_);
  self_.reset();
}

}  // namespace hardtack::serve::rpc
