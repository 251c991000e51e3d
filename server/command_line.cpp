#include "server/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <vector>

namespace hardtack::serve {

namespace {

constexpr const char* kAbout =
    R"(Serves Hardtack bundles over HTTP: the Open Inference Protocol, version 2, as tritonclient, the KServe SDK and curl
speak it.

  hardtack-server models/                     models/NAME/VERSION/*.pkg, models/NAME/*.pkg, models/NAME.pkg
  hardtack-server mlp.pkg                     one model, called "mlp"
  curl localhost:8000/v2/health/ready         200 when every model is loaded
  curl localhost:8000/v2/models/mlp           what it takes and gives
  curl localhost:8000/v2/models/mlp/infer -d '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}'

A file that is replaced is loaded beside what serves and takes over once it is verified. SIGTERM finishes what was begun
and exits with 0; a second signal exits at once.)";

constexpr const char* kExits =
    "Exit status: 0 stopped by a signal, 1 it cannot serve or did not drain in time, 2 wrong use.";

// "32" for all models or "NAME=32" for one.
struct PerModel {
  std::string flag, text;
  std::function<void(ModelOptions&, std::int64_t)> set;
  std::int64_t least = 0;
  std::vector<std::string> values = {};
};

std::int64_t number_of(const PerModel& option, const std::string& text) {
  std::int64_t number = 0;
  const bool digits = !text.empty() && text.size() < 16 && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits) number = std::stoll(text);
  if (!digits || number < option.least || number > std::numeric_limits<int>::max()) {
    throw CLI::ValidationError(option.flag, "\"" + text + "\" is no whole number of at least " +
                                                std::to_string(option.least) + " (N for all models, NAME=N for one)");
  }
  return number;
}

// First what is for all models, so that the order of the arguments does not matter.
void set_all(const std::vector<PerModel>& options, RepositoryOptions& repository) {
  for (const PerModel& option : options) {
    for (const std::string& value : option.values) {
      if (value.find('=') == std::string::npos) option.set(repository.defaults, number_of(option, value));
    }
  }
  for (const PerModel& option : options) {
    for (const std::string& value : option.values) {
      const std::size_t split = value.rfind('=');
      if (split == std::string::npos) continue;
      ModelOptions& model = repository.models.emplace(value.substr(0, split), repository.defaults).first->second;
      option.set(model, number_of(option, value.substr(split + 1)));
    }
  }
}

void add_per_model(CLI::App& app, std::vector<PerModel>& options) {
  options = {
      {"--sessions", "Runs of a model at the same time, each with memory of its own [usable CPUs, at most 4]",
       [](ModelOptions& m, std::int64_t n) { m.sessions = static_cast<int>(n); }, 1},
      {"--max-batch",
       "Rows that the server may put together into one run, for models whose dimension 0 is a symbol. Only for models "
       "whose rows do not influence each other [1: requests run as they come]",
       [](ModelOptions& m, std::int64_t n) { m.max_batch = n; }, 1},
      {"--max-delay", "Microseconds that a batch which is not full waits for more, when all sessions were busy [0]",
       [](ModelOptions& m, std::int64_t n) { m.max_delay = std::chrono::microseconds(n); }, 0},
      {"--max-queue", "Requests that wait; one more is answered with 503 at once [256]",
       [](ModelOptions& m, std::int64_t n) { m.max_queue = static_cast<std::size_t>(n); }, 0},
      {"--max-sequences", "Sequences whose states are kept, for models with states [1024]",
       [](ModelOptions& m, std::int64_t n) { m.max_sequences = static_cast<std::size_t>(n); }, 1},
      {"--sequence-idle", "Seconds after which a sequence without requests is forgotten [600]",
       [](ModelOptions& m, std::int64_t n) { m.sequence_idle = std::chrono::seconds(n); }, 1},
      {"--max-run-ms", "Milliseconds after which a run is stopped and answered with 504; 0: never [60000]",
       [](ModelOptions& m, std::int64_t n) { m.max_run = std::chrono::milliseconds(n); }, 0},
  };
  for (PerModel& option : options) {
    app.add_option(option.flag, option.values, option.text)
        ->group("Running models (N, or NAME=N for one)")
        ->type_name("[NAME=]N")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

void add_models(CLI::App& app, RepositoryOptions& repository, std::string& load, bool& no_verify, bool& no_control,
                int& poll) {
  const char* group = "Models";
  app.add_option("models", repository.path, "A folder of models, or one .pkg file")->required()->type_name("PATH");
  app.add_option("--device", repository.device, "cpu, cuda or cuda:N [cpu]")->group(group);
  app.add_option("--target", repository.target, "Which of a bundle's targets [the best that runs here]")->group(group);
  app.add_option("--versions", repository.versions.newest, "Serve only the N highest versions of each model [0: all]")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--load", load, "all: everything that is found; none: only what is asked for by request [all]")
      ->group(group)
      ->check(CLI::IsMember({"all", "none"}));
  app.add_flag("--no-control", no_control, "Refuse to load and unload models by request")->group(group);
  app.add_option("--poll", poll, "Milliseconds between looks at the files; 0: never [500]")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  auto* unverified = app.add_flag("--no-verify", no_verify, "Do not check hashes before a bundle serves")->group(group);
  app.add_option(
         "--trusted-keys", repository.trusted_keys,
         "File of public keys and lowest versions: serve only bundles that one of the keys signed for the model "
         "of that name. Read at each load")
      ->group(group)
      ->type_name("FILE")
      ->excludes(unverified);
  app.add_flag(
         "--map-weights", repository.map_weights,
         "Map weights from the files instead of copying them: shared between processes, but replace files only by "
         "renaming, never in place")
      ->group(group);
  app.add_option("--threads", repository.threads, "Threads that all sessions share for their kernels [all cores]")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--own-threads", repository.own_pools, "Give each session --threads of its own")->group(group);
  app.add_option("--max-session-bytes", repository.max_session_nbytes, "Most memory of a session [no limit]")
      ->group(group);
}

struct Seconds {
  std::int64_t idle = 75, header = 10, stall = 30, drain = 30;
};

void add_network(CLI::App& app, http::HttpOptions& http, std::uint64_t& max_memory, std::string& tokens,
                 Seconds& seconds) {
  const char* group = "Network";
  app.add_option("--host", http.host, "Address to listen on; 0.0.0.0 for all [127.0.0.1]")->group(group);
  app.add_option("--http-port", http.port, "Port; 0: one that is free, see the log [8000]")
      ->group(group)
      ->check(CLI::Range(0, 65535));
  app.add_option("--io-threads", http.io_threads, "Threads for connections [usable CPUs, from 2 to 4]")
      ->group(group)
      ->check(CLI::Range(1, 256));
  app.add_option("--max-body", http.max_body, "Most bytes of a body, inflated, too [268435456]")->group(group);
  app.add_option(
         "--max-memory", max_memory,
         "Most bytes of all requests, answers, states and sessions together; more are refused [what the control "
         "group, or the machine, leaves]")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--max-header", http.max_header, "Most bytes of a request's header [16384]")
      ->group(group)
      ->check(CLI::Range(256, 1 << 20));
  app.add_option("--max-connections", http.max_connections,
                 "For HTTP and for gRPC each; one more is answered with 503, or closed [1024]")
      ->group(group);
  app.add_option(
         "--tokens", tokens,
         "File with a name, a token, roles (infer,control,metrics) and perhaps requests a second in a line: who "
         "shows none of these tokens may ask for health only. Read again when it changes [everybody may do "
         "everything]")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--idle-timeout", seconds.idle, "Seconds that a connection may wait for its next request [75]")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--header-timeout", seconds.header, "Seconds that a request's header may take [10]")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--stall-timeout", seconds.stall,
                 "Seconds that a body or a reply may take, and 1 more for each 64 KiB [30]")
      ->group(group)
      ->check(CLI::PositiveNumber);
  app.add_option("--drain-timeout", seconds.drain, "Seconds after SIGTERM to finish what was begun [30]")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  auto* certificate =
      app.add_option("--tls-certificate", http.tls_certificate, "PEM file: serve HTTPS with this chain")->group(group);
  auto* key = app.add_option("--tls-key", http.tls_key, "PEM file: its private key")->group(group)->needs(certificate);
  certificate->needs(key);
  app.add_option("--tls-client-ca", http.tls_client_ca, "PEM file: clients must show a certificate of this authority")
      ->group(group)
      ->needs(certificate);
}

#ifdef HARDTACK_SERVER_GRPC
void add_grpc(CLI::App& app, CommandLine& line) {
  const std::map<std::string, rpc::Compression> levels = {{"none", rpc::Compression::kNone},
                                                          {"low", rpc::Compression::kLow},
                                                          {"medium", rpc::Compression::kMedium},
                                                          {"high", rpc::Compression::kHigh}};
  const char* group = "gRPC (address, --max-body, TLS and logs as for HTTP)";
  app.add_option("--grpc-port", line.grpc.port, "Port; 0: one that is free, see the log [8001]")
      ->group(group)
      ->check(CLI::Range(0, 65535));
  app.add_flag("!--no-grpc", line.serve_grpc, "Serve HTTP only")->group(group);
  app.add_option("--grpc-compression", line.grpc.compression, "Of replies: none, low, medium or high [none]")
      ->group(group)
      ->transform(CLI::CheckedTransformer(levels));
}

void share_with_grpc(CommandLine& line) {
  line.grpc.host = line.http.host;
  line.grpc.max_message = line.http.max_body;
  line.grpc.max_metadata = line.http.max_header;
  line.grpc.max_connections = line.http.max_connections;
  line.grpc.tls_certificate = line.http.tls_certificate;
  line.grpc.tls_key = line.http.tls_key;
  line.grpc.tls_client_ca = line.http.tls_client_ca;
  line.grpc.handshake_timeout = line.http.header_timeout;
  // As HTTP's for the largest body; gRPC's messages have at most 2 GiB.
  const std::size_t largest = std::min(line.http.max_body, std::size_t{1} << 31U);
  line.grpc.message_timeout = line.http.stall_timeout + std::chrono::seconds(largest >> 16U);
  line.grpc.log_requests = line.http.log_requests;
}
#endif

}  // namespace

CommandLine read_command_line(int argc, char** argv, std::optional<int>& exit_code) {
  CommandLine line;
  Seconds seconds;
  std::vector<PerModel> per_model;
  std::string load = "all", format = "auto", level = "info";
  bool no_verify = false, no_control = false;
  int poll = 500;
  CLI::App app(kAbout, "hardtack-server");
  app.footer(kExits);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a later argument overrides
  app.set_version_flag("--version", std::string("hardtack-server ") + ht_version());
  add_models(app, line.repository, load, no_verify, no_control, poll);
  add_per_model(app, per_model);
  add_network(app, line.http, line.max_memory, line.tokens, seconds);
#ifdef HARDTACK_SERVER_GRPC
  add_grpc(app, line);
#endif
  app.add_option("--log-file", line.log_file, "Append to this file [standard error]")->group("Log");
  app.add_option("--log-format", format, "json, text, or auto: text on a terminal [auto]")
      ->group("Log")
      ->check(CLI::IsMember({"auto", "json", "text"}));
  app.add_option("--log-level", level, "debug, info, warning or error [info]")
      ->group("Log")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_flag("--log-requests", line.http.log_requests, "A line for each request")->group("Log");
  try {
    app.parse(argc, argv);
    set_all(per_model, line.repository);
#ifdef HARDTACK_SERVER_GRPC
    if (line.serve_grpc && line.grpc.port != 0 && line.grpc.port == line.http.port) {
      throw CLI::ValidationError("--grpc-port", std::to_string(line.grpc.port) + " is --http-port, too");
    }
#endif
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return line;
  }
  line.repository.load_all = load == "all";
  line.repository.verify_weights = !no_verify;
  line.repository.allow_control = !no_control;
  line.repository.poll = std::chrono::milliseconds(poll);
  line.http.idle_timeout = std::chrono::seconds(seconds.idle);
  line.http.header_timeout = std::chrono::seconds(seconds.header);
  line.http.stall_timeout = std::chrono::seconds(seconds.stall);
  line.drain_timeout = std::chrono::seconds(seconds.drain);
#ifdef HARDTACK_SERVER_GRPC
  share_with_grpc(line);
#endif
  const bool terminal = line.log_file.empty() && ::isatty(STDERR_FILENO) == 1;
  line.log_format = format == "text" || (format == "auto" && terminal) ? LogFormat::kText : LogFormat::kJson;
  const std::vector<std::string> levels = {"debug", "info", "warning", "error"};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == level) line.log_level = static_cast<Level>(i);
  }
  return line;
}

}  // namespace hardtack::serve
