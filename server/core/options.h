// What the command line decides about models. Plain data: set before the repository is made, never changed after.
#ifndef HARDTACK_SERVER_CORE_OPTIONS_H
#define HARDTACK_SERVER_CORE_OPTIONS_H

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace hardtack::serve {

/// How each version of one model runs.
struct ModelOptions {
  int sessions = 0;                          // runs at the same time; 0: as many as cores, at most 4
  std::int64_t max_batch = 1;                // rows that the server puts together; 1: requests run as they came
  std::chrono::microseconds max_delay{0};    // how long a batch that is not full waits for more
  std::size_t max_queue = 256;               // requests that wait; one more is answered with kQueueFull at once
  std::size_t max_sequences = 1024;          // sequences whose states are kept
  std::chrono::seconds sequence_idle{600};   // a sequence without requests for so long is forgotten
  std::chrono::milliseconds max_run{60000};  // a run that takes longer is stopped; 0: none is
};

/// Which of a model's version folders are served.
struct VersionPolicy {
  int newest = 0;  // the so many highest; 0: all
};

struct RepositoryOptions {
  std::string path;    // a folder of models or one .pkg file
  std::string device;  // "", "cpu", "cuda", "cuda:1"
  std::string target;  // "" means the best that the device runs
  ModelOptions defaults;
  std::map<std::string, ModelOptions> models;  // for some models by name
  VersionPolicy versions;
  int threads = 0;             // of the pool that all sessions share; 0: as many as this process may use
  bool own_pools = false;      // a pool of `threads` for each session instead
  bool map_weights = false;    // map weights from the file: shared between processes, but the file must never be
                               // overwritten in place
  std::string trusted_keys;    // a file; "": bundles need no signature. No model may do without
  bool verify_weights = true;  // check the hashes of everything in a bundle before it serves
  bool allow_control = true;   // load and unload by request
  bool load_all = true;        // load everything that is found at start; false: only what is asked for by request
  std::uint64_t max_session_nbytes = 0;  // 0: no limit
  std::chrono::milliseconds poll{500};   // how often files are looked at; 0: never, only at start and by request

  const ModelOptions& of(const std::string& model) const {
    const auto found = models.find(model);
    return found == models.end() ? defaults : found->second;
  }
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_OPTIONS_H
