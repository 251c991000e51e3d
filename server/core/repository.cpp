#include "server/core/repository.h"

#include <algorithm>

#include "server/core/repository_state.h"
#include "server/core/text.h"

namespace hardtack::serve {

namespace {

constexpr auto kUnload =
    std::chrono::seconds(10);  // for the runs of a model that is taken away, beside what they may take

std::string quoted(const std::string& name) { return "\"" + cut(name, 200) + "\""; }

std::string fault_of(const ModelVersion& version) {
  const StatisticsSnapshot now = version.statistics();
  if (!now.device_fault.empty()) return "model " + quoted(version.model()) + ": " + now.device_fault;
  if (now.stuck == 0) return "";
  return "model " + quoted(version.model()) + ": " + std::to_string(now.stuck) + " of " +
         std::to_string(version.sessions()) + " sessions do not come back from a run that was to end after " +
         std::to_string(version.options().max_run.count()) + " ms";
}

}  // namespace

Repository::Repository(std::unique_ptr<State> state) : state_(std::move(state)) {}

Outcome<std::unique_ptr<Repository>> Repository::open(const RepositoryOptions& options, Budget& budget, Log& log) {
  auto state = std::make_unique<State>(log);
  state->options = options;
  state->budget = &budget;
  if (!options.own_pools) {
    auto pool = hardtack::Pool::create(options.threads);
    if (!pool.ok()) return Error{Code::kInvalid, pool.status().message()};
    state->workers.pool = std::move(*pool);
  }
  auto found = find_bundles(options.path);
  if (!found.ok()) return found.error();
  if (found->empty()) {
    log.write(Level::kWarning, "no models found", {{"path", options.path}, {"looks_every_ms", options.poll.count()}});
  }
  for (const auto& [name, model] : options.models) {
    if (found->count(name) > 0) continue;
    log.write(Level::kWarning, "options name a model that is not there", {{"model", name}, {"path", options.path}});
  }
  for (const auto& [name, versions] : *found) {
    state->table[name].wanted = options.load_all;
    for (const auto& [number, file] : state->chosen(versions))
      state->table[name].versions[number].loading = options.load_all;
  }
  state->seen = std::move(*found);
  State* raw = state.get();
  state->looker = std::thread([raw] { raw->watch_files(); });
  state->reaper = std::thread([raw] { raw->reap_retired(); });
  return std::unique_ptr<Repository>(new Repository(std::move(state)));
}

Repository::~Repository() {
  stop();
  {
    const std::lock_guard<std::mutex> lock(state_->thread_mutex);
    state_->ending = true;
  }
  state_->wake.notify_all();
  state_->looker.join();
  state_->loaders.join();
  {
    const std::unique_lock lock(state_->table_mutex);
    for (auto& [name, model] : state_->table) {
      for (auto& [number, slot] : model.versions) {
        if (slot.serving != nullptr) state_->retire(std::move(slot.serving));
      }
    }
    state_->table.clear();
  }
  state_->reap.notify_all();
  state_->reaper.join();
}

const RepositoryOptions& Repository::options() const { return state_->options; }

Budget& Repository::budget() const { return *state_->budget; }

void Repository::infer(Request request, Done done) noexcept {
  Failure refused;
  try {
    auto version = find(request.model, request.version);
    if (state_->stopping) {
      refused = Error{Code::kStopping, "the server is shutting down"};
    } else if (version.ok()) {
      return (*version)->submit(std::move(request), std::move(done));
    } else {
      refused = version.error();
    }
  } catch (...) {  // of what stands above: submit() throws nothing
    refused = from_exception();
  }
  Response response;
  response.model = std::move(request.model);
  response.version = std::move(request.version);
  response.id = std::move(request.id);
  response.error = std::move(refused);
  tell(done, std::move(response));
}

std::string Repository::State::reason_not_ready(const ModelSlot& slot) const {
  if (!slot.wanted) return "it is not loaded; load it with a request to the repository";
  for (const auto& [number, version] : slot.versions) {
    if (version.loading) return "it is being loaded";
  }
  for (auto it = slot.versions.rbegin(); it != slot.versions.rend(); ++it) {
    if (!it->second.reason.empty()) return it->second.reason;
  }
  return "it has no version";
}

Error Repository::why_refused(const Request& request, const Error& wrong) const {
  if (request.model.empty()) return wrong;  // not even that could be read
  auto known = find(request.model, request.version);
  return known.ok() ? wrong : known.error();
}

Failure Repository::check(Request& request) const {
  auto known = find(request.model, request.version);
  if (!known.ok()) return known.error();
  return (*known)->check(request);
}

Outcome<std::shared_ptr<ModelVersion>> Repository::find(const std::string& model, const std::string& version) const {
  const std::int64_t number = version.empty() ? 0 : version_number(version);
  if (!version.empty() && number == 0) {
    return Error{Code::kInvalid, "version " + quoted(version) + " is no number; versions are 1, 2, ..."};
  }
  const std::shared_lock lock(state_->table_mutex);
  const auto found = state_->table.find(model);
  if (found == state_->table.end()) return Error{Code::kNotFound, "there is no model " + quoted(model)};
  const ModelSlot& slot = found->second;
  if (number > 0) {
    const auto exact = slot.versions.find(number);
    if (exact == slot.versions.end()) {
      return Error{Code::kNotFound, "model " + quoted(model) + " has no version " + version};
    }
    if (exact->second.serving != nullptr) return exact->second.serving;
    const std::string& reason = exact->second.reason;
    return Error{Code::kNotReady,
                 "model " + quoted(model) + ", version " + version + ", is not ready: " +
                     (exact->second.loading || reason.empty() ? state_->reason_not_ready(slot) : reason)};
  }
  for (auto it = slot.versions.rbegin(); it != slot.versions.rend(); ++it) {
    if (it->second.serving != nullptr) return it->second.serving;
  }
  return Error{Code::kNotReady, "model " + quoted(model) + " is not ready: " + state_->reason_not_ready(slot)};
}

Outcome<std::vector<std::shared_ptr<ModelVersion>>> Repository::versions(const std::string& model) const {
  const std::shared_lock lock(state_->table_mutex);
  const auto found = state_->table.find(model);
  if (found == state_->table.end()) return Error{Code::kNotFound, "there is no model " + quoted(model)};
  std::vector<std::shared_ptr<ModelVersion>> ready;
  for (const auto& [number, slot] : found->second.versions) {
    if (slot.serving != nullptr) ready.push_back(slot.serving);
  }
  return ready;
}

std::vector<std::shared_ptr<ModelVersion>> Repository::all() const {
  const std::shared_lock lock(state_->table_mutex);
  std::vector<std::shared_ptr<ModelVersion>> ready;
  for (const auto& [name, model] : state_->table) {
    for (const auto& [number, slot] : model.versions) {
      if (slot.serving != nullptr) ready.push_back(slot.serving);
    }
  }
  return ready;
}

std::vector<IndexEntry> Repository::index(bool only_ready) const {
  const std::shared_lock lock(state_->table_mutex);
  std::vector<IndexEntry> rows;
  for (const auto& [name, model] : state_->table) {
    for (const auto& [number, slot] : model.versions) {
      const bool ready = slot.serving != nullptr;
      if (only_ready && !ready) continue;
      const char* state = ready ? "READY" : model.wanted && slot.loading ? "LOADING" : "UNAVAILABLE";
      rows.push_back({name, std::to_string(number), state, !ready && !model.wanted ? "not loaded" : slot.reason});
    }
    if (model.versions.empty() && !only_ready) rows.push_back({name, "", "UNAVAILABLE", "not loaded"});
  }
  return rows;
}

Failure Repository::load(const std::string& model) try {
  if (!state_->options.allow_control) {
    return Error{Code::kUnsupported, "this server does not load or unload models by request (--no-control)"};
  }
  if (state_->stopping) return Error{Code::kStopping, "the server is shutting down"};
  const State::Change change(*state_, model);
  std::map<std::string, std::string> unreadable;
  auto found = find_bundles(state_->options.path, &unreadable);
  if (!found.ok()) return found.error();
  if (unreadable.count(model) > 0) {
    return Error{Code::kInvalid, "model " + quoted(model) + " was not loaded: " + unreadable[model]};
  }
  if (found->count(model) == 0) {
    return Error{Code::kNotFound, "there are no files of a model " + quoted(model) + " in the repository"};
  }
  const FoundVersions& files = (*found)[model];
  state_->apply(model, files, true);
  const std::unique_lock lock(state_->table_mutex);
  ModelSlot& slot = state_->table[model];
  for (const auto& [number, file] : state_->chosen(files)) {
    const VersionSlot& version = slot.versions[number];
    if (version.reason.empty()) continue;
    return Error{Code::kInvalid, "model " + quoted(model) + ", version " + std::to_string(number) +
                                     ", was not loaded: " + version.reason};
  }
  slot.wanted = true;
  return std::nullopt;
} catch (...) {
  return from_exception();
}

Failure Repository::unload(const std::string& model) try {
  if (!state_->options.allow_control) {
    return Error{Code::kUnsupported, "this server does not load or unload models by request (--no-control)"};
  }
  std::vector<std::weak_ptr<ModelVersion>> leaving;
  {
    const State::Change change(*state_, model);
    const std::unique_lock lock(state_->table_mutex);
    const auto found = state_->table.find(model);
    if (found == state_->table.end()) return Error{Code::kNotFound, "there is no model " + quoted(model)};
    found->second.wanted = false;
    for (auto& [number, slot] : found->second.versions) {
      slot.loading = false;
      slot.reason = slot.failed_stamp = slot.stamp = "";
      if (slot.serving == nullptr) continue;
      ++state_->unloads;
      leaving.emplace_back(slot.serving);
      state_->retire(std::move(slot.serving));
    }
  }
  state_->log->write(Level::kInfo, "model unloaded", {{"model", model}, {"versions", leaving.size()}});
  const auto until = Clock::now() + state_->options.of(model).max_run + kUnload;
  for (const auto& version : leaving) {
    while (!version.expired()) {
      if (Clock::now() >= until) {
        return Error{Code::kDeadline, "model " + quoted(model) + " is unloaded, and a run of it has not ended yet"};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return std::nullopt;
} catch (...) {
  return from_exception();
}

std::string Repository::fault() const {
  for (const auto& version : all()) {
    std::string fault = fault_of(*version);
    if (!fault.empty()) return fault;
  }
  const std::lock_guard<std::mutex> lock(state_->thread_mutex);
  for (const auto& version : state_->retiring) {
    std::string fault = fault_of(*version);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string Repository::not_ready_reason() const {
  if (state_->draining) return "the server is shutting down";
  std::string why = fault();
  if (!why.empty()) return why;
  const std::shared_lock lock(state_->table_mutex);
  for (const auto& [name, model] : state_->table) {
    if (!model.wanted) continue;
    const bool ready = std::any_of(model.versions.begin(), model.versions.end(),
                                   [](const auto& version) { return version.second.serving != nullptr; });
    if (!ready) return "model " + quoted(name) + " is not ready: " + state_->reason_not_ready(model);
  }
  return "";
}

bool Repository::ready() const { return not_ready_reason().empty(); }

void Repository::drain() { state_->draining = true; }

void Repository::stop() {
  state_->draining = state_->stopping = true;
  for (const auto& version : all()) version->stop();
}

bool Repository::drained(Clock::time_point until) {
  while (true) {
    bool idle = true;
    for (const auto& version : all()) idle = idle && version->idle();
    {
      const std::lock_guard<std::mutex> lock(state_->thread_mutex);
      for (const auto& version : state_->retiring) idle = idle && version->idle();
    }
    if (idle) return true;
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool Repository::loading() const {
  const std::lock_guard<std::mutex> lock(state_->changing_mutex);
  return !state_->changing.empty();
}

Repository::Counters Repository::counters() const { return {state_->loads, state_->load_failures, state_->unloads}; }

}  // namespace hardtack::serve
