#ifndef HARDTACK_SERVER_GRPC_TLS_H
#define HARDTACK_SERVER_GRPC_TLS_H

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/grpc/server.h"

namespace hardtack::serve::rpc {

/// What the options say about TLS; plain without it. kInvalid names the file that cannot be used.
Outcome<std::shared_ptr<::grpc::ServerCredentials>> credentials(const GrpcOptions& options);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_TLS_H
