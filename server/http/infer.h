// Inference over HTTP: a body becomes a Request, a Response becomes a reply.
#ifndef HARDTACK_SERVER_HTTP_INFER_H
#define HARDTACK_SERVER_HTTP_INFER_H

#include <memory>
#include <string>

#include "server/core/background.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"
#include "server/http/message.h"

namespace hardtack::serve::http {

/// What inference needs of the server; all of it outlives the requests.
struct InferRoom {
  Repository& repository;
  const SharedMemory& shared;
  Background& parsing;  // for what an io thread must not do
  std::size_t max_body;
};

/// Reads the request, runs it, and replies once, before it returns or later.
void infer(const InferRoom& room, const std::string& model, const std::string& version, HttpRequest&& request,
           Reply&& reply);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_INFER_H
