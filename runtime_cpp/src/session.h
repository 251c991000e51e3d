// A session: the memory and the bound shapes of one user of a model. One thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "binding.h"
#include "contract.h"
#include "interpreter.h"
#include "model.h"
#include "session_memory.h"
#include "thread_pool.h"

namespace hardtack::rt {

/// What the options ask for, resolved.
struct SessionConfig {
  std::shared_ptr<ThreadPool> pool;  // null with the caller's threads
  HtParallel parallel = {};
  ht_allocator allocator = {};
  uint64_t max_nbytes = 0;
  size_t max_cached_shapes = 16;
  void* stream = nullptr;
  bool asynchronous = false;
  bool graphs = true;
  ht_outputs outputs = HT_OUTPUTS_FOLLOW;
};

class Session {
 public:
  static Status create(std::shared_ptr<const Model> model, SessionConfig config, std::unique_ptr<Session>* session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status run(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs);
  Status bind(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs);
  Status reset();
  Status synchronize();
  Status set_stream(void* stream);
  void* stream() const { return queue_->stream_handle(); }
  Status read_state(const char* name, void* data, size_t nbytes);
  Status write_state(const char* name, const void* data, size_t nbytes);
  void trim();
  void memory(ht_memory_info* info) const;
  void set_observer(ht_observer call, void* user) {
    observer_.call = call;
    observer_.user = user;
  }
  /// From any thread: stops the run that is under way.
  void interrupt() { interrupted_.store(true, std::memory_order_relaxed); }

 private:
  struct OwnOutput {
    void* data = nullptr;
    std::vector<int64_t> dims;  // shape, then strides; never empty, so that its address marks our tensors
  };
  struct EntryState {
    std::vector<std::unique_ptr<Binding>> bindings;
    std::vector<Block> outputs;         // what the session returns, on the device
    std::vector<Block> host_outputs;    // the same on the host, of a device that the host does not reach
    std::vector<Block> staged_inputs;   // device copies of inputs that kernels cannot take where they lie
    std::vector<void*> origins;         // where a written input that is staged came from; null: it is not both
    std::vector<Block> staged_outputs;  // what kernels write in the place of such outputs
    std::vector<void*> destinations;    // where a staged output of the current call goes; null: it is not staged
    std::vector<bool> has_place;        // outputs of the current call whose sizes are known, and so their places
    bool recordable = false;
    std::vector<OwnOutput> own;  // what the last run returned
    std::vector<int64_t> syms;   // of the current call
  };
  class Unfinished;
  struct Call {
    size_t entry = 0;
    const ht_tensor* inputs = nullptr;
    ht_tensor* outputs = nullptr;
    Binding* binding = nullptr;
    const Binding* first = nullptr;  // what ht_session_bind gave shapes of, which stay while the call goes on
    bool own_on_host = false;        // outputs of the session's own are copied to the host
  };

  Session(std::shared_ptr<const Model> model, SessionConfig config, std::unique_ptr<Queue> queue);
  Status init_states();
  Status start(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs,
               Call* call);
  Status find_binding(Call* call);
  class NewSizes;
  Status rebind(Call* call, int64_t size);
  Status check_inputs(const Call& call, const Binding& binding) const;
  Status check_written(const Call& call) const;
  void evict(EntryState* entry, const Binding* kept);
  Status ensure_memory(const Call& call, int64_t kept_nbytes = 0);
  Status grow_arena(int64_t nbytes, int64_t kept_nbytes);
  bool is_own(const Call& call, size_t output) const;
  // session_io.cpp
  bool takes(const ht_tensor& tensor) const;
  bool own_on_host(const Call& call) const;
  Block* own_block(const Call& call, size_t output);
  Status set_inputs(const Call& call);
  Status set_outputs(const Call& call);
  Status set_output(const Call& call, size_t output);
  Status execute(Call* call, bool* wrote_states);
  Status record(const Call& call, Replay* replay);
  Replay* find_replay(Binding* binding, bool* fresh);
  Status deliver(const Call& call, bool* wait);
  Status break_off(Status status);
  Status finish(const Call& call, bool wait);
  Status report(Status status, const Fault& fault) const;
  Status check_apart(const Call& call, size_t output);
  void fill_form(const Value& value, bool on_host, ht_tensor* out) const;
  void return_own(const Call& call, size_t output);
  Status check_states(const Call& call) const;
  Status state_error(size_t state, const char* entry) const;
  void mark_states(const Call& call, std::vector<const char*>* states) const;
  void settle_states(bool whole, bool waited);
  Status settle(Status status, bool waited);
  Status find_state(const char* name, size_t nbytes, size_t* state) const;
  Port input_port(const Call& call, size_t i) const;
  Port output_port(const Call& call, size_t i) const;

  const std::shared_ptr<const Model> model_;
  const SessionConfig config_;
  const Device& device_;
  const std::unique_ptr<Queue> queue_;
  Memory memory_;
  std::vector<EntryState> entries_;
  std::vector<Block> states_;
  std::vector<void*> state_data_;
  std::vector<const char*> unsettled_;  // by state: the entry whose run may still be writing it; null: none
  std::vector<const char*> torn_;       // by state: the entry whose run failed while it wrote it, or what else did
  Block arena_, workspace_;
  uint64_t generation_ = 1;  // changes when arena or workspace move
  uint64_t tick_ = 0;
  std::vector<void*> pointers_;           // of the current run
  std::atomic<bool> interrupted_{false};  // the run that is under way
  Observer observer_{nullptr, nullptr, &interrupted_};
};

}  // namespace hardtack::rt
