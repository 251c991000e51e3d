// One loaded bundle that serves: its sessions, its queue, its worker threads, its numbers.
//
// Ownership. Repository makes ModelVersions and hands out shared_ptrs. Hold one for the length of a call (to read the
// interface, to fill an answer), never in a Done, a member or a queue: a version that was replaced is destroyed, by the
// repository's own thread, when its requests are answered and nobody else holds it.
//
// Threads. Everything public is safe from any thread; the interface (entries, names, shapes) never changes.
#ifndef HARDTACK_SERVER_CORE_MODEL_VERSION_H
#define HARDTACK_SERVER_CORE_MODEL_VERSION_H

#include <hardtack/hardtack.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/budget.h"
#include "server/core/options.h"
#include "server/core/request.h"
#include "server/core/statistics.h"

namespace hardtack::serve {

class Batcher;

/// A tensor of an entry point as clients see it.
struct TensorMeta {
  std::string name;
  ht_dtype dtype{};
  const char* datatype = "";      // protocol_name(dtype)
  Shape shape;                    // -1 where a dimension is not fixed
  std::vector<ht_dim_info> dims;  // with ranges and the texts "s0", "2*s0"; live as long as the version
};

struct Workers;

struct Entry {
  std::string name;
  std::size_t index = 0;  // in the bundle
  std::vector<TensorMeta> inputs, outputs;
  /// The rows of dimension 0 may be put together: options ask for it, all inputs and outputs have the same symbol there
  /// and nowhere else, and the model has no states.
  bool batches = false;
  bool loops = false;          // it has control flow: how long it takes is up to the data
  std::int64_t max_batch = 0;  // rows, when it batches: the option or the symbol's upper bound
};

class ModelVersion {
 public:
  /// Loads the bundle, verifies it as `options` say, makes the sessions and starts the threads. Takes as long as it
  /// takes. `workers` and `budget` must outlive it. `statistics` go on over reloads of the same version.
  static Outcome<std::shared_ptr<ModelVersion>> load(const std::string& model, std::int64_t version,
                                                     const std::string& path, const RepositoryOptions& options,
                                                     Workers& workers, Budget& budget,
                                                     std::shared_ptr<Statistics> statistics);
  /// Only when idle(): joins the threads.
  ~ModelVersion();

  const std::string& model() const { return model_; }
  const std::string& version() const { return version_; }  // "1"
  const std::string& path() const { return path_; }
  const ht_model_info& info() const { return bundle_.info(); }
  const hardtack::Model& bundle() const { return bundle_; }
  const ModelOptions& options() const { return options_; }
  int sessions() const { return num_sessions_; }
  bool has_states() const { return info().num_states > 0; }
  bool on_gpu() const { return std::string_view(info().device) != "cpu"; }

  const std::vector<Entry>& entries() const { return entries_; }
  /// The only entry, else the one called "forward", else the first.
  const Entry& default_entry() const { return entries_[default_entry_]; }
  /// "prefill,decode"
  std::string entry_names() const;
  /// "" means the default.
  Outcome<const Entry*> entry(std::string_view name) const;

  /// As the model configuration extension has it: max_batch_size is 0, or > 0 for models that batch, whose shapes are
  /// then told without dimension 0 (config_shape).
  std::int64_t max_batch_size() const { return default_entry().batches ? default_entry().max_batch : 0; }
  Shape config_shape(const TensorMeta& tensor) const;

  /// No other version of this process has it, nor had.
  std::uint64_t number() const { return number_; }

  /// What is wrong with a request whose inputs have names, types and shapes, and may have no data yet; counted like
  /// what submit() refuses. If nothing is, submit() does not look at them again.
  Failure check(Request& request) const;
  /// Runs the request, or queues it. See request.h for Done. Repository::infer is what protocols call.
  void submit(Request&& request, Done&& done) noexcept;
  /// Refuses what comes from now on (kStopping); what is queued or running is finished.
  void stop();
  /// Nothing is queued or running.
  bool idle() const;
  StatisticsSnapshot statistics() const;

 private:
  ModelVersion();

  const std::uint64_t number_;
  std::string model_, version_, path_;
  Share weights_;  // in memory of this process
  ModelOptions options_;
  hardtack::Model bundle_;
  std::vector<Entry> entries_;
  std::size_t default_entry_ = 0;
  int num_sessions_ = 0;
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_MODEL_VERSION_H
