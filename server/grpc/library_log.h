// What gRPC and protobuf have to say, as lines of the server's log and not as text of their own on standard error.
#ifndef HARDTACK_SERVER_GRPC_LIBRARY_LOG_H
#define HARDTACK_SERVER_GRPC_LIBRARY_LOG_H

#include "server/core/log.h"

namespace hardtack::serve::rpc {

/// From now on the libraries of this process write to `log`; null: nowhere. When this returns, the log that was set
/// before is used no more. Safe from any thread.
void set_library_log(Log* log);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_LIBRARY_LOG_H
