// How a repository follows its files: looking, loading, replacing, taking away.

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "server/core/repository_state.h"

namespace hardtack::serve {

namespace {

bool same(const FoundVersions& a, const FoundVersions& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.path == y.second.path && x.second.stamp == y.second.stamp;
  });
}

}  // namespace

// --- looking at files ---

FoundVersions Repository::State::chosen(const FoundVersions& found) const {
  const auto newest = static_cast<std::size_t>(options.versions.newest);
  if (newest == 0 || found.size() <= newest) return found;
  return FoundVersions(std::prev(found.end(), static_cast<std::ptrdiff_t>(newest)), found.end());
}

Repository::State::Change::Change(State& state, std::string model) : state_(state), model_(std::move(model)) {
  std::unique_lock<std::mutex> lock(state_.changing_mutex);
  state_.changed.wait(lock, [this] { return state_.changing.count(model_) == 0; });
  state_.changing.insert(model_);
}

Repository::State::Change::~Change() {
  {
    const std::lock_guard<std::mutex> lock(state_.changing_mutex);
    state_.changing.erase(model_);
  }
  state_.changed.notify_all();
}

// Whether apply() would find nothing to do.
bool Repository::State::in_line(const std::string& name, const FoundVersions& found) const {
  const std::shared_lock lock(table_mutex);
  const auto model = table.find(name);
  if (found.empty() || model == table.end()) return found.empty() && model == table.end();
  const FoundVersions wanted = chosen(found);
  if (model->second.versions.size() != wanted.size()) return false;
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& file) {
    const auto slot = model->second.versions.find(file.first);
    if (slot == model->second.versions.end()) return false;
    const VersionSlot& is = slot->second;
    if (is.failed_stamp == file.second.stamp) return true;
    return is.serving != nullptr && is.stamp == file.second.stamp && is.reason.empty();
  });
}

// Brings what serves in line with the files. `again`: files that failed to load are tried once more.
void Repository::State::apply(const std::string& name, const FoundVersions& found, bool again) {
  const FoundVersions wanted = chosen(found);
  bool all_ready = true;
  for (const auto& [number, file] : wanted) {
    bool load = false;
    {
      const std::unique_lock lock(table_mutex);
      VersionSlot& slot = table[name].versions[number];
      const bool serves = slot.serving != nullptr && slot.stamp == file.stamp;
      load = !serves && (again || slot.failed_stamp != file.stamp);
      slot.loading = load;
      if (serves) slot.failed_stamp = slot.reason = "";
    }
    if (load) load_version(name, number, file);
    const std::shared_lock lock(table_mutex);
    all_ready = all_ready && table.at(name).versions.at(number).serving != nullptr;
  }
  const std::unique_lock lock(table_mutex);
  ModelSlot& model = table[name];
  for (auto it = model.versions.begin(); it != model.versions.end();) {
    const bool keep = wanted.count(it->first) > 0 || (found.count(it->first) > 0 && !all_ready);
    if (!keep && it->second.serving != nullptr) {
      log->write(Level::kInfo, "version unloaded", {{"model", name}, {"version", it->first}});
      ++unloads;
      retire(std::move(it->second.serving));
    }
    it = keep ? std::next(it) : model.versions.erase(it);
  }
  if (found.empty()) table.erase(name);
}

void Repository::State::load_version(const std::string& name, std::int64_t number, const Found& found) {
  std::shared_ptr<Statistics> statistics;
  {
    const std::shared_lock lock(table_mutex);
    statistics = table.at(name).versions.at(number).statistics;
  }
  const auto start = Clock::now();
  Failure failed;
  std::shared_ptr<ModelVersion> fresh;
  if (!found.problem.empty()) {
    failed = Error{Code::kInvalid, found.problem};
  } else {
    auto loaded =
        ModelVersion::load(name, number, found.path, options, workers, *budget, statistics);  // throws nothing
    if (loaded.ok()) {
      fresh = std::move(*loaded);
    } else {
      failed = loaded.error();
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::unique_lock lock(table_mutex);
  VersionSlot& slot = table[name].versions[number];
  slot.loading = false;
  if (failed) {
    ++load_failures;
    slot.failed_stamp = found.stamp;
    slot.reason = failed->sentence;
    log->write(Level::kError, slot.serving ? "reload failed, the old bundle serves on" : "load failed",
               {{"model", name}, {"version", number}, {"path", found.path}, {"reason", failed->sentence}});
    return;
  }
  ++loads;
  log->write(Level::kInfo, slot.serving ? "model reloaded" : "model loaded",
             {{"model", name},
              {"version", number},
              {"path", found.path},
              {"target", fresh->info().target},
              {"sessions", fresh->sessions()},
              {"max_batch", fresh->max_batch_size()},
              {"seconds", seconds}});
  const std::shared_ptr<ModelVersion> old = std::exchange(slot.serving, std::move(fresh));
  slot.stamp = found.stamp;
  slot.failed_stamp = slot.reason = "";
  if (old != nullptr) retire(old);
}

void Repository::State::follow_files() {
  std::map<std::string, std::string> kept;
  auto found = find_bundles(options.path, &kept);
  if (!found.ok()) {
    if (!unreadable)
      log->write(Level::kError, "the repository cannot be read; what serves goes on",
                 {{"reason", found.error().sentence}});
    unreadable = true;
    return;
  }
  unreadable = false;
  for (const auto& [name, why] : kept) {
    const auto known = unreadable_models.find(name);
    if (known != unreadable_models.end() && known->second == why) continue;
    log->write(Level::kError, "a model's files cannot be read; what serves goes on",
               {{"model", name}, {"reason", why}});
  }
  unreadable_models = std::move(kept);
  FoundModels now = std::move(*found);
  std::vector<std::string> names;
  {
    const std::unique_lock lock(table_mutex);
    for (const auto& [name, versions] : now) {
      if (table.count(name) > 0) continue;
      table[name].wanted = options.load_all;
      for (const auto& [number, file] : chosen(versions)) table[name].versions[number].loading = options.load_all;
    }
    for (const auto& [name, slot] : table) {
      if (unreadable_models.count(name) > 0) continue;
      if (slot.wanted || now.count(name) == 0) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    const FoundVersions &was = seen[name], &is = now[name];
    if (same(was, is) && !in_line(name, is)) follow(name, is);  // it has stayed as it is for one look
  }
  seen = std::move(now);
}

// On a loader's thread. What is being loaded is looked at again when that is over.
void Repository::State::follow(const std::string& name, const FoundVersions& found) {
  {
    const std::lock_guard<std::mutex> lock(changing_mutex);
    if (changing.count(name) > 0 || !followed.insert(name).second) return;
  }
  const auto over = [this](const std::string& model) {
    const std::lock_guard<std::mutex> lock(changing_mutex);
    followed.erase(model);
  };
  try {
    loaders.post(0, [this, over, name, found] {
      try {
        const Change change(*this, name);
        if (!stopping) apply(name, found, false);
      } catch (...) {
        not_followed();
      }
      over(name);
    });
  } catch (...) {  // else no later look would follow it
    over(name);
    throw;
  }
}

void Repository::State::not_followed() noexcept {
  log->write(Level::kError, "the repository cannot be followed now; what serves goes on",
             {{"reason", from_exception().sentence}});
}

// Out of memory, as a rule: what was not done is done at a later look.
void Repository::State::look() noexcept {
  try {
    follow_files();
  } catch (...) {
    not_followed();
  }
}

void Repository::State::watch_files() {
  look();  // `seen` is what open() saw
  std::unique_lock<std::mutex> lock(thread_mutex);
  while (!ending) {
    if (options.poll.count() == 0) {
      wake.wait(lock);
      continue;
    }
    if (wake.wait_for(lock, options.poll, [&] { return ending; })) return;
    lock.unlock();
    look();
    lock.lock();
  }
}

// --- old versions ---

void Repository::State::retire(std::shared_ptr<ModelVersion> version) {
  {
    const std::lock_guard<std::mutex> lock(thread_mutex);
    retiring.push_back(std::move(version));
  }
  reap.notify_one();
}

// Destroys versions that nobody can reach any more (they are out of the table) and that owe no answer.
void Repository::State::reap_retired() {
  std::unique_lock<std::mutex> lock(thread_mutex);
  while (!ending || !retiring.empty()) {
    std::list<std::shared_ptr<ModelVersion>> done;
    for (auto it = retiring.begin(); it != retiring.end();) {
      const auto one = it++;
      if (one->use_count() == 1 && (*one)->idle()) done.splice(done.end(), retiring, one);
    }
    lock.unlock();
    if (!done.empty()) {
      done.clear();
      ::malloc_trim(0);  // a model's memory is large: give it back, so that reloads do not add up
    }
    lock.lock();
    if (!retiring.empty()) {
      reap.wait_for(lock, std::chrono::milliseconds(5));
    } else if (!ending) {
      reap.wait(lock);
    }
  }
}

}  // namespace hardtack::serve
