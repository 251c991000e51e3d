// Inference over HTTP: a body becomes a Request, a Response becomes a reply.
#ifndef HARDTACK_SERVER_HTTP_INFER_H
#define HARDTACK_SERVER_HTTP_INFER_H

#include <memory>
#include <string>

#include "server/core/repository.h"
#include "server/core/shared_memory.h"
#include "server/http/message.h"

namespace hardtack::serve::http {

/// Reads the request, runs it, and replies once.
void infer(Repository& repository, const SharedMemory& shared, std::size_t max_body, const std::string& model,
           const std::string& version, HttpRequest&& request, Reply&& reply);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_INFER_H
