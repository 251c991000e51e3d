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
};

class Session {
 public:
  static Status create(std::shared_ptr<const Model> model, SessionConfig config, std::unique_ptr<Session>* session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status run(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs);
  Status bind(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs);
  void reset();
  Status read_state(const char* name, void* data, size_t nbytes);
  Status write_state(const char* name, const void* data, size_t nbytes);
  void trim();
  void memory(ht_memory_info* info) const;
  void set_observer(Observer observer) { observer_ = observer; }

 private:
  struct OwnOutput {
    void* data = nullptr;
    std::vector<int64_t> dims;  // shape, then strides; never empty, so that its address marks our tensors
  };
  struct EntryState {
    std::vector<std::unique_ptr<Binding>> bindings;
    std::vector<Block> outputs;
    std::vector<OwnOutput> own;  // what the last run returned
    std::vector<int64_t> syms;   // of the current call
  };
  struct Call {
    size_t entry = 0;
    const ht_tensor* inputs = nullptr;
    ht_tensor* outputs = nullptr;
    Binding* binding = nullptr;
  };

  Session(std::shared_ptr<const Model> model, SessionConfig config);
  Status init_states();
  Status start(const char* entry, const ht_tensor* inputs, size_t num_inputs, ht_tensor* outputs, size_t num_outputs,
               Call* call);
  Status find_binding(Call* call);
  Status check_inputs(const Call& call, const Binding& binding) const;
  void evict(EntryState* entry);
  Status ensure_memory(const Call& call);
  bool is_own(const Call& call, size_t output) const;
  Status set_outputs(const Call& call);
  Status check_apart(const Call& call, size_t output) const;
  static void fill_form(const Value& value, const ht_device& device, ht_tensor* out);
  void return_own(const Call& call, size_t output);
  Status find_state(const char* name, size_t nbytes, size_t* state) const;
  Port input_port(const Call& call, size_t i) const;
  Port output_port(const Call& call, size_t i) const;

  const std::shared_ptr<const Model> model_;
  const SessionConfig config_;
  const Device& device_;
  Memory memory_;
  std::vector<EntryState> entries_;
  std::vector<Block> states_;
  std::vector<void*> state_data_;
  Block arena_, workspace_;
  uint64_t generation_ = 1;  // changes when arena or workspace move
  uint64_t tick_ = 0;
  Observer observer_;
};

}  // namespace hardtack::rt
