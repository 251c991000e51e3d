// Requests over gRPC: a channel a client, all of one completion queue, which polls on the only thread.
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include "load.h"

namespace load {

namespace {

constexpr const char* kMethod = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::uint32_t kId = 3 << 3 | 2, kRawOutput = 6 << 3 | 2;  // of ModelInferResponse

class Client {
 public:
  Client(int port, int number) : number_(number), stub_(channel(port, number)) {}

  void send(const std::string& request, ::grpc::CompletionQueue& queue) {
    const ::grpc::Slice slice(request.data(), request.size());
    const ::grpc::ByteBuffer bytes(&slice, 1);
    call_.reset();
    context_ = std::make_unique<::grpc::ClientContext>();
    call_ = stub_.PrepareUnaryCall(context_.get(), kMethod, bytes, &queue);
    call_->StartCall();
    call_->Finish(&bytes_, &status_, this);
  }

  Answer answer() {
    Answer made;
    made.client = number_;
    ::grpc::Slice slice;
    if (!status_.ok()) {
      made.error = status_.error_message();
    } else if (!bytes_.DumpToSingleSlice(&slice).ok()) {
      made.error = "an answer without bytes";
    } else {
      slice_ = slice;
      read(made);
    }
    return made;
  }

 private:
  static std::shared_ptr<::grpc::Channel> channel(int port, int number) {
    ::grpc::ChannelArguments arguments;
    arguments.SetInt("client", number);  // channels of equal arguments would share a connection
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto made = ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials(),
                                            arguments);
    if (!made->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) die("cannot connect");
    return made;
  }

  void read(Answer& made) {
    google::protobuf::io::CodedInputStream in(slice_.begin(), static_cast<int>(slice_.size()));
    while (const std::uint32_t tag = in.ReadTag()) {
      std::uint32_t nbytes = 0;
      if ((tag & 7) != 2 || !in.ReadVarint32(&nbytes)) break;
      const char* field = reinterpret_cast<const char*>(slice_.begin()) + in.CurrentPosition();
      if (!in.Skip(static_cast<int>(nbytes))) break;
      if (tag == kId) made.id = std::string_view(field, nbytes);
      if (tag == kRawOutput) made.output = std::string_view(field, nbytes);
    }
  }

  const int number_;
  ::grpc::GenericStub stub_;
  std::unique_ptr<::grpc::ClientContext> context_;
  std::unique_ptr<::grpc::GenericClientAsyncResponseReader> call_;
  ::grpc::ByteBuffer bytes_;
  ::grpc::Slice slice_;
  ::grpc::Status status_;
};

class Grpc : public Transport {
 public:
  Grpc(int port, int clients) {
    for (int client = 0; client < clients; ++client) clients_.push_back(std::make_unique<Client>(port, client));
  }
  ~Grpc() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void send(int client, const std::string& request) override {
    clients_[static_cast<std::size_t>(client)]->send(request, queue_);
  }

  void wait(Clock::time_point until, std::vector<Answer>& answers) override {
    void* tag = nullptr;
    bool ok = false;
    const auto left = std::chrono::duration_cast<std::chrono::system_clock::duration>(until - Clock::now());
    const auto deadline = std::chrono::system_clock::now() + left;
    if (queue_.AsyncNext(&tag, &ok, deadline) != ::grpc::CompletionQueue::GOT_EVENT) return;
    answers.push_back(static_cast<Client*>(tag)->answer());
  }

 private:
  ::grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace

std::unique_ptr<Transport> grpc(int port, int clients) { return std::make_unique<Grpc>(port, clients); }

}  // namespace load
