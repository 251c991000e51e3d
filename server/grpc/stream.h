// A call of ModelStreamInfer: requests come one after the other, each gets one reply, in order.
#ifndef HARDTACK_SERVER_GRPC_STREAM_H
#define HARDTACK_SERVER_GRPC_STREAM_H

#include <deque>
#include <memory>
#include <mutex>

#include "server/grpc/service.h"

namespace hardtack::serve::rpc {

/// Requests are read ahead of their replies, so that a stream can fill a batch; a failed request is answered with
/// error_message and the stream goes on. Owned by itself until gRPC is done with it, and by what runs for it.
class StreamCall final : public ::grpc::ServerBidiReactor<Bytes, Bytes>,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  static StreamCall* start(Shared& shared, ::grpc::CallbackServerContext* context);

  /// Reads no more; ends the stream with UNAVAILABLE when what was read is answered.
  void end() noexcept;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Slot {
    bool ready = false;
    Bytes bytes;
  };

  StreamCall(Shared& shared, ::grpc::CallbackServerContext* context);
  void take(const std::shared_ptr<Slot>& slot) noexcept;
  void taken(const std::shared_ptr<Slot>& slot);
  void reply(const std::shared_ptr<Slot>& slot, const Bytes& bytes);
  void refuse(const std::shared_ptr<Slot>& slot, const std::string& model, const std::string& id,
              const std::string& sentence) noexcept;
  void give_up() noexcept;
  void pump() noexcept;
  void do_next();

  Shared& shared_;
  ::grpc::CallbackServerContext* context_;
  const Clock::time_point arrived_ = Clock::now();
  const Clock::time_point deadline_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<StreamCall> self_;
  Caller caller_;
  bool first_ = true;  // no message came yet; of whoever reads

  std::mutex mutex_;
  Bytes incoming_;
  std::deque<std::shared_ptr<Slot>> slots_;  // in the order of requests; the first is being written when writing_
  bool reading_ = false, writing_ = false, closed_ = false, finished_ = false;
  ::grpc::Status status_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_STREAM_H
