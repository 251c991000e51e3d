// Which path does what. No sockets: a request comes in, a reply goes out, here or on another thread.
#ifndef HARDTACK_SERVER_HTTP_ROUTES_H
#define HARDTACK_SERVER_HTTP_ROUTES_H

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "server/core/access.h"
#include "server/core/background.h"
#include "server/core/metrics.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"
#include "server/http/message.h"

namespace hardtack::serve::http {

class Routes {
 public:
  /// Loading a model goes to `control`, and what an io thread must not do to `parsing`. `more_metrics` adds what others
  /// count.
  Routes(Repository& repository, SharedMemory& shared, Access& access, const Log& log, std::size_t max_body,
         Background& control, Background& parsing, std::function<void(MetricsPage&)> more_metrics);

  /// Whether who asks may: sets `caller`, or says why not. Comes before the body, if there is one, is read.
  Failure admit(HttpRequest& request, bool has_body);
  /// Calls `reply` exactly once, before it returns or later.
  void handle(HttpRequest&& request, Reply&& reply);

 private:
  using Path = std::vector<std::string>;
  void models(const Path& path, HttpRequest&& request, Reply&& reply);
  void repository(const Path& path, HttpRequest&& request, Reply&& reply);
  void load_or_unload(const std::string& model, bool load, HttpRequest&& request, Reply&& reply);
  HttpReply system_memory(const Path& path, HttpRequest& request);
  HttpReply cuda_memory(const Path& path, const HttpRequest& request) const;
  HttpReply add_region(const std::string& name, HttpRequest& request);
  HttpReply index(HttpRequest& request);
  HttpReply health(const Path& path) const;
  HttpReply model_page(const std::string& model, const std::string& version, const std::string& page) const;
  HttpReply all_statistics() const;
  HttpReply metrics() const;

  Repository& repository_;
  SharedMemory& shared_;
  Access& access_;
  const Log& log_;
  std::size_t max_body_;
  Background& control_;
  Background& parsing_;
  std::function<void(MetricsPage&)> more_metrics_;
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_ROUTES_H
