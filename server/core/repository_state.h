// What a repository holds, and the threads that look at files and take away what was replaced. Inside of server/core.
#ifndef HARDTACK_SERVER_CORE_REPOSITORY_STATE_H
#define HARDTACK_SERVER_CORE_REPOSITORY_STATE_H

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/core/background.h"
#include "server/core/bundles.h"
#include "server/core/repository.h"
#include "server/core/spread.h"

namespace hardtack::serve {

struct VersionSlot {
  std::shared_ptr<ModelVersion> serving;  // null: none is ready
  std::string stamp;                      // of the file that serves
  std::string failed_stamp;               // of the file that did not load
  std::string reason;
  bool loading = true;  // now, or not tried yet
  std::shared_ptr<Statistics> statistics = std::make_shared<Statistics>();
};

struct ModelSlot {
  std::map<std::int64_t, VersionSlot> versions;
  bool wanted = true;  // false: unloaded by request, or not asked for yet
};

inline constexpr int kLoaders = 8;

struct Repository::State {
  explicit State(Log& log_) : log(&log_), loaders(kLoaders, log_) {}

  /// As long as it lives, nobody else loads or takes away versions of the model.
  class Change {
   public:
    Change(State& state, std::string model);  // waits for others
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    State& state_;
    const std::string model_;
  };

  RepositoryOptions options;
  Budget* budget = nullptr;
  Log* log;
  Workers workers;  // without a pool with own_pools
  mutable std::shared_mutex table_mutex;
  std::map<std::string, ModelSlot> table;
  std::mutex changing_mutex;  // taken before table_mutex
  std::condition_variable changed;
  std::set<std::string> followed;  // models that a loader will bring in line with their files; under changing_mutex
  std::set<std::string> changing;  // models of which something is loaded or taken away now; under changing_mutex
  std::mutex thread_mutex;
  std::condition_variable wake, reap;
  std::list<std::shared_ptr<ModelVersion>> retiring;  // under thread_mutex
  bool ending = false;                                // under thread_mutex
  std::atomic<bool> draining{false}, stopping{false};
  std::atomic<std::uint64_t> loads{0}, load_failures{0}, unloads{0};
  FoundModels seen;                                      // the last look; of the looking thread
  bool unreadable = false;                               // at the last look
  std::map<std::string, std::string> unreadable_models;  // at the last look, and why
  std::thread looker, reaper;
  Background loaders;  // for what the looker finds: one file that is slow to read delays no other

  void watch_files();
  void look() noexcept;
  void follow(const std::string& name, const FoundVersions& found);
  void not_followed() noexcept;
  void follow_files();
  bool in_line(const std::string& name, const FoundVersions& found) const;
  void apply(const std::string& name, const FoundVersions& found, bool again);
  FoundVersions chosen(const FoundVersions& found) const;
  void load_version(const std::string& name, std::int64_t number, const Found& found);
  void retire(std::shared_ptr<ModelVersion> version);
  void reap_retired();
  std::string reason_not_ready(const ModelSlot& slot) const;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_REPOSITORY_STATE_H
