// The models that are served: found in a folder, loaded, replaced while they serve, and taken away.
//
//   MODEL_DIR/NAME/VERSION/*.pkg    versions are positive numbers
//   MODEL_DIR/NAME/*.pkg            one bundle: version 1
//   MODEL_DIR/NAME.pkg              the same without a folder
//   FILE.pkg                        a single model, called as the file is
//
// A thread looks at the files every `poll`. A file that is new or has changed, and has stayed as it is for one poll, is
// loaded and verified beside the version that serves; only then the new one takes over. Requests in flight finish on the
// version they began with. A bundle that does not load leaves what serves as it is; its sentence is in the index and in
// the log, and it is tried again when the file changes.
//
// Threads. Everything public is safe from any thread. load() and unload() take as long as loading takes: do not call
// them on a thread that must stay responsive. Nothing else waits for a load, the load of another model neither.
#ifndef HARDTACK_SERVER_CORE_REPOSITORY_H
#define HARDTACK_SERVER_CORE_REPOSITORY_H

#include <memory>
#include <string>
#include <vector>

#include "server/core/budget.h"
#include "server/core/log.h"
#include "server/core/model_version.h"
#include "server/core/options.h"
#include "server/core/request.h"

namespace hardtack::serve {

/// A row of the repository index.
struct IndexEntry {
  std::string name;
  std::string version;  // "" for a model without any version
  std::string state;    // "READY", "UNAVAILABLE", "LOADING", "UNLOADING"
  std::string reason;   // why it is not ready, or why the newer file did not replace what serves; ""
};

class Repository {
 public:
  /// Looks at the files and starts to load them on a thread of its own: find() and ready() tell how far it is. A model
  /// that does not load is no error here (it is in the index); a path that is not there is. `log` and `budget` must outlive it.
  static Outcome<std::unique_ptr<Repository>> open(const RepositoryOptions& options, Budget& budget, Log& log);
  /// Stops, and waits for the requests that were taken.
  ~Repository();

  const RepositoryOptions& options() const;
  /// Of the process: what protocols hold counts, too.
  Budget& budget() const;

  /// Takes a request: finds the version, checks the inputs, queues or runs it. Errors come through `done`, too.
  void infer(Request request, Done done) noexcept;

  /// The version that would serve this; `version` "" means the highest that is ready. kNotFound: no such model or
  /// version; kNotReady: known, but it does not serve (the sentence says why); kInvalid: `version` is no number.
  Outcome<std::shared_ptr<ModelVersion>> find(const std::string& model, const std::string& version) const;
  /// What a client is told whose request is wrong: an unknown model comes before what is wrong with a request to it.
  Error why_refused(const Request& request, const Error& wrong) const;
  /// What is wrong with a request whose inputs have names, types and shapes, and may have no data yet: ask before they
  /// are copied.
  Failure check(Request& request) const;
  /// The ready versions of a model, ascending. kNotFound: no such model.
  Outcome<std::vector<std::shared_ptr<ModelVersion>>> versions(const std::string& model) const;
  /// All ready versions, by model and version.
  std::vector<std::shared_ptr<ModelVersion>> all() const;

  std::vector<IndexEntry> index(bool only_ready) const;
  /// Reads the model's files now and serves them. kUnsupported where control is not allowed, kNotFound without files,
  /// kInvalid with the loader's sentence (what served before goes on).
  Failure load(const std::string& model);
  /// Takes the model away until it is loaded by request; returns when its requests are answered. kNotFound: no such.
  Failure unload(const std::string& model);

  /// True until drain() or stop() when every model that is to be served has a version that is ready: what load balancers ask.
  bool ready() const;
  /// "model \"a\" is not ready: ...", for people; "" when ready().
  std::string not_ready_reason() const;

  /// Why this process is better ended: "model \"a\": ..." with what the GPU or its driver said, while nothing was
  /// answered well since (a process that has lost its device does not get it back), or that a run does not come back
  /// though it was asked to end. "" when all is well. ready() is false meanwhile.
  std::string fault() const;

  /// ready() is false from now on, so that no more clients are sent here; requests are served as before.
  void drain();
  /// New requests get kStopping from now on; those taken are finished. Does not wait.
  void stop();
  /// Waits until all are answered, at most until `until`; true when they are.
  bool drained(Clock::time_point until);

  /// Something is being loaded or taken away: destroying the repository would wait for it.
  bool loading() const;

  struct Counters {
    std::uint64_t loads = 0, load_failures = 0, unloads = 0;
  };
  Counters counters() const;

 private:
  struct State;
  explicit Repository(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_REPOSITORY_H
