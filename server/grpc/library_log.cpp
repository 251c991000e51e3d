#include "server/grpc/library_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <mutex>
#include <string>
#include <string_view>

namespace hardtack::serve::rpc {

namespace {

std::mutex mutex;
Log* current = nullptr;  // under the mutex

void tell(Level level, const char* library, const char* file, int line, std::string_view message) {
  std::string_view name = file;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  const std::lock_guard<std::mutex> lock(mutex);
  if (current == nullptr) return;
  current->write(level, library, {{"message", message}, {"file", name}, {"line", line}});
}

void from_grpc(gpr_log_func_args* args) {
  const Level level = args->severity == GPR_LOG_SEVERITY_ERROR ? Level::kWarning : Level::kDebug;
  tell(level, "gRPC", args->file, args->line, args->message);
}

// Its errors are bytes that are no message, which the client is told; a line for each would let clients fill the disk.
void from_protobuf(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  tell(level == google::protobuf::LOGLEVEL_FATAL ? Level::kError : Level::kDebug, "protobuf", file, line, message);
}

}  // namespace

void set_library_log(Log* log) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    current = log;
  }
  gpr_set_log_function(from_grpc);
  google::protobuf::SetLogHandler(from_protobuf);
}

}  // namespace hardtack::serve::rpc
