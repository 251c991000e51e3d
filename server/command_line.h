// What `hardtack-server` is told to do.
#ifndef HARDTACK_SERVER_COMMAND_LINE_H
#define HARDTACK_SERVER_COMMAND_LINE_H

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "server/core/log.h"
#include "server/core/options.h"
#ifdef HARDTACK_SERVER_GRPC
#include "server/grpc/server.h"
#endif
#include "server/http/server.h"

namespace hardtack::serve {

struct CommandLine {
  RepositoryOptions repository;
  http::HttpOptions http;
#ifdef HARDTACK_SERVER_GRPC
  bool serve_grpc = true;
  rpc::GrpcOptions grpc;  // address, limits, TLS and logging as for HTTP
#endif
  std::string log_file;
  std::string tokens;            // a file; "": everybody may do everything
  std::uint64_t max_memory = 0;  // of what clients make the process hold; 0: as the system's limits allow
  LogFormat log_format = LogFormat::kJson;
  Level log_level = Level::kInfo;
  std::chrono::seconds drain_timeout{30};
};

/// Reads the arguments. After --help, --version or wrong use, which it prints about, `exit_code` is set.
CommandLine read_command_line(int argc, char** argv, std::optional<int>& exit_code);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_COMMAND_LINE_H
