#include "server/http/routes.h"

#include <algorithm>

#include "server/core/protocol.h"
#include "server/core/text.h"
#include "server/http/control_json.h"
#include "server/http/infer.h"
#include "server/http/pages.h"

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kMostSegments = 16;

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// "a%20b" -> "a b"
std::string decoded(std::string_view segment) {
  std::string text;
  for (std::size_t at = 0; at < segment.size();) {
    const std::size_t percent = std::min(segment.find('%', at), segment.size());
    text += segment.substr(at, percent - at);
    at = percent;
    if (at == segment.size()) break;
    const bool escape = at + 2 < segment.size() && hex(segment[at + 1]) >= 0 && hex(segment[at + 2]) >= 0;
    text += escape ? static_cast<char>(hex(segment[at + 1]) * 16 + hex(segment[at + 2])) : '%';
    at += escape ? 3 : 1;
  }
  return text;
}

// "/v2/models/a%20b?x" -> {"v2", "models", "a b"}; empty for a target that is no path.
std::vector<std::string> segments(std::string_view target) {
  std::vector<std::string> path;
  if (target.substr(0, 7) == "http://" ||
      target.substr(0, 8) == "https://") {  // as to a proxy: the host does not matter
    const std::size_t slash = target.find('/', 8);
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  if (target.empty() || target[0] != '/') return path;
  path.reserve(6);  // those of /v2/models/M/versions/V/infer
  for (std::size_t at = 1; at < target.size();) {
    const std::size_t end = std::min(target.find('/', at), target.size());
    if (path.size() == kMostSegments) return {};
    path.push_back(decoded(target.substr(at, end - at)));
    at = end + 1;
  }
  return path;
}

// What a request to this path asks for. Shared memory is part of inference.
Role role_for(const std::vector<std::string>& path) {
  if (path.size() == 1 && path[0] == "metrics") return Role::kMetrics;
  if (path.size() < 2 || path[0] != "v2") return Role::kAny;
  if (path[1] == "health") return Role::kNone;
  const std::string& last = path.back();
  if (path[1] == "repository") return last == "load" || last == "unload" ? Role::kControl : Role::kAny;
  const bool shared_memory = path[1] == "systemsharedmemory" || path[1] == "cudasharedmemory";
  if (path[1] == "models" && last == "infer") return Role::kInfer;
  return shared_memory && last != "status" ? Role::kInfer : Role::kAny;
}

HttpReply page(std::string text) {
  HttpReply reply;
  reply.text = std::move(text);
  return reply;
}

HttpReply wrong_method(const char* allow) {
  HttpReply reply = error_reply(405, std::string("this path takes ") + allow);
  reply.allow = allow;
  return reply;
}

bool gets(const HttpRequest& request) { return request.method == Method::kGet || request.method == Method::kHead; }

HttpReply no_such_path(const HttpRequest& request) {
  return error_reply(404, "there is nothing at " + cut(request.target, 200) + "; the API starts at /v2");
}

}  // namespace

Routes::Routes(Repository& repository, SharedMemory& shared, Access& access, const Log& log, std::size_t max_body,
               Background& control, Background& parsing, std::function<void(MetricsPage&)> more_metrics)
    : repository_(repository),
      shared_(shared),
      access_(access),
      log_(log),
      max_body_(max_body),
      control_(control),
      parsing_(parsing),
      more_metrics_(std::move(more_metrics)) {}

Failure Routes::admit(HttpRequest& request, bool has_body) {
  if (!access_.asks()) return std::nullopt;
  Role role = role_for(segments(request.target));
  if (role == Role::kNone && has_body) role = Role::kAny;  // who may ask without a token sends nothing to be kept
  auto caller = access_.admit(request.authorization, role);
  if (!caller.ok()) return caller.error();
  request.caller = std::move(*caller);
  return std::nullopt;
}

void Routes::handle(HttpRequest&& request, Reply&& reply) {
  const Path path = segments(request.target);
  if (path.size() == 1 && path[0] == "metrics") return reply(gets(request) ? metrics() : wrong_method("GET"));
  if (path.empty() || path[0] != "v2") return reply(no_such_path(request));
  if (path.size() == 1) return reply(gets(request) ? page(server_page()) : wrong_method("GET"));
  if (path[1] == "health" && path.size() == 3 && (path[2] == "live" || path[2] == "ready")) {
    return reply(gets(request) ? health(path) : wrong_method("GET"));
  }
  if (path[1] == "models") return models(path, std::move(request), std::move(reply));
  if (path[1] == "repository") return repository(path, std::move(request), std::move(reply));
  if (path[1] == "systemsharedmemory") return reply(system_memory(path, request));
  if (path[1] == "cudasharedmemory") return reply(cuda_memory(path, request));
  reply(no_such_path(request));
}

HttpReply Routes::health(const Path& path) const {
  const bool live = path[2] == "live";
  const std::string name = live ? "{\"live\":" : "{\"ready\":";
  const std::string reason = live ? repository_.fault() : repository_.not_ready_reason();
  if (reason.empty()) return page(name + "true}");
  HttpReply reply = page(name + "false,\"error\":");
  append_json_string(reply.text, reason);
  reply.text += '}';
  reply.status = 503;
  return reply;
}

// /v2/models/stats, /v2/models/M[/versions/V][/ready|/config|/stats|/infer]
void Routes::models(const Path& path, HttpRequest&& request, Reply&& reply) {
  if (path.size() == 3 && path[2] == "stats" && !repository_.versions("stats").ok()) {
    return reply(gets(request) ? all_statistics() : wrong_method("GET"));
  }
  if (path.size() < 3 || path[2].empty()) return reply(no_such_path(request));
  std::size_t next = 3;
  std::string version;
  if (path.size() > 4 && path[3] == "versions") {
    version = path[4];
    next = 5;
  }
  const std::string what = path.size() > next ? path[next] : "";
  const bool known = what.empty() || what == "ready" || what == "config" || what == "stats" || what == "infer";
  if (path.size() > next + 1 || !known || (path.size() > next && what.empty())) return reply(no_such_path(request));
  if (what == "infer") {
    if (request.method != Method::kPost) return reply(wrong_method("POST"));
    return infer({repository_, shared_, parsing_, max_body_}, path[2], version, std::move(request), std::move(reply));
  }
  reply(gets(request) ? model_page(path[2], version, what) : wrong_method("GET"));
}

HttpReply Routes::model_page(const std::string& model, const std::string& version, const std::string& what) const {
  auto found = repository_.find(model, version);
  if (what == "ready" && !found.ok() && found.error().code == Code::kNotReady) {
    HttpReply reply = error_reply(found.error());
    reply.text = "{\"name\":";
    append_json_string(reply.text, model);
    append_json_string(reply.text += ",\"ready\":false,\"error\":", found.error().sentence);
    reply.text += '}';
    return reply;
  }
  auto ready = repository_.versions(model);
  if (!found.ok()) return error_reply(found.error());
  if (!ready.ok()) return error_reply(ready.error());
  if (what == "ready") {
    std::string text = "{\"name\":";
    append_json_string(text, model);
    return page(text + ",\"ready\":true}");
  }
  if (what == "config") return page(config_page(**found));
  if (what == "stats") return page(statistics_page(version.empty() ? *ready : std::vector{*found}));
  return page(metadata_page(**found, *ready));
}

HttpReply Routes::all_statistics() const { return page(statistics_page(repository_.all())); }

HttpReply Routes::metrics() const {
  MetricsPage text;
  write_core_metrics(text, repository_, log_);
  more_metrics_(text);
  HttpReply reply = page(text.take());
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

// /v2/repository/index, /v2/repository/models/M/load|unload
void Routes::repository(const Path& path, HttpRequest&& request, Reply&& reply) {
  if (path.size() == 3 && path[2] == "index") {
    return reply(request.method == Method::kPost || gets(request) ? index(request) : wrong_method("POST"));
  }
  const bool control_path = path.size() == 5 && path[2] == "models" && (path[4] == "load" || path[4] == "unload");
  if (!control_path) return reply(no_such_path(request));
  if (request.method != Method::kPost) return reply(wrong_method("POST"));
  load_or_unload(path[3], path[4] == "load", std::move(request), std::move(reply));
}

HttpReply Routes::index(HttpRequest& request) {
  auto body = read_control_json(request, repository_.budget());
  if (!body.ok()) return error_reply(body.error());
  const ControlValue* ready = body->find("ready");
  if (ready == nullptr) return page(index_page(repository_.index(false)));
  const bool* only = std::get_if<bool>(ready);
  if (only == nullptr) return error_reply(400, "\"ready\" must be true or false");
  return page(index_page(repository_.index(*only)));
}

void Routes::load_or_unload(const std::string& model, bool load, HttpRequest&& request, Reply&& reply) {
  auto body = read_control_json(request, repository_.budget());
  if (!body.ok()) return reply(error_reply(body.error()));
  if (load) {
    for (const std::string& name : body->parameters) {
      if (Failure refused = check_load_parameter(name)) return reply(error_reply(*refused));
    }
  }
  control_.post(request.client(), [this, model, load, reply = std::move(reply)] {
    Failure failed = load ? repository_.load(model) : repository_.unload(model);
    reply(failed ? error_reply(*failed) : page("{}"));  // so short a page takes no memory
  });
}

// /v2/systemsharedmemory[/region/R]/status|register|unregister
HttpReply Routes::system_memory(const Path& path, HttpRequest& request) {
  const bool named = path.size() == 5 && path[2] == "region";
  if (!named && path.size() != 3) return no_such_path(request);
  const std::string region = named ? path[3] : "";
  const std::string& what = path.back();
  if (what == "status") {
    if (!gets(request)) return wrong_method("GET");
    auto regions = shared_.list(request.caller.name, region);
    if (!regions.ok()) return error_reply(regions.error());
    return page(regions_page(*regions));
  }
  if (what != "unregister" && !(what == "register" && named)) return no_such_path(request);
  if (request.method != Method::kPost) return wrong_method("POST");
  if (what == "register") return add_region(region, request);
  shared_.remove(request.caller.name, region);
  return page("{}");
}

HttpReply Routes::add_region(const std::string& name, HttpRequest& request) {
  auto body = read_control_json(request, repository_.budget());
  if (!body.ok()) return error_reply(body.error());
  const ControlValue *key = body->find("key"), *nbytes = body->find("byte_size"), *offset = body->find("offset");
  const auto is_number = [](const ControlValue* value) {
    return value != nullptr && std::holds_alternative<std::uint64_t>(*value);
  };
  if (key == nullptr || !std::holds_alternative<std::string>(*key))
    return error_reply(400, "\"key\" must be the name of the shared memory object");
  if (!is_number(nbytes)) return error_reply(400, "\"byte_size\" must be a whole number");
  if (offset != nullptr && !is_number(offset)) return error_reply(400, "\"offset\" must be a whole number");
  const std::uint64_t start = offset == nullptr ? 0 : std::get<std::uint64_t>(*offset);
  const Region region{request.caller.name, name, std::get<std::string>(*key), start, std::get<std::uint64_t>(*nbytes)};
  if (Failure failed = shared_.add(region)) return error_reply(*failed);
  return page("{}");
}

// Clients ask for the status, and unregister all, as a matter of course; regions cannot be registered.
HttpReply Routes::cuda_memory(const Path& path, const HttpRequest& request) const {
  if (path.back() == "status") return page("[]");
  if (path.back() == "unregister") return page("{}");
  if (path.back() != "register") return no_such_path(request);
  return error_reply(400, "CUDA shared memory is not supported; use system shared memory or the binary form");
}

}  // namespace hardtack::serve::http
