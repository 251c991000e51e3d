// A session as Python sees it.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <string>

#include "tensor_in.h"
#include "tensor_out.h"

namespace hardtack::py_binding {

// Raises the module's NativeError(code, message) when `failed` is not null.
void check(ht_status* failed);

struct ModelFree {
  void operator()(ht_model* model) const { ht_model_free(model); }
};
struct PoolFree {
  void operator()(ht_pool* pool) const { ht_pool_free(pool); }
};
struct SessionFree {
  void operator()(ht_session* session) const { ht_session_free(session); }
};
using ModelHandle = std::shared_ptr<ht_model>;
using PoolHandle = std::unique_ptr<ht_pool, PoolFree>;
using SessionHandle = std::unique_ptr<ht_session, SessionFree>;

// Two threads at once in one session, or a call from an observer.
struct SessionBusy : std::exception {
  const char* what() const noexcept override {
    return "the session is running; each thread needs a session of its own (model.session())";
  }
};

// What a session is made with; see ht_session_options.
struct SessionSpec {
  uint64_t max_nbytes = 0;
  uintptr_t stream = 0;
  bool asynchronous = false;
  bool graphs = true;
  int outputs = 0;
};

class PySession {
 public:
  PySession(ModelHandle model, ht_pool* pool, const SessionSpec& spec);
  ~PySession();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // Runs entry point number `entry` on a sequence of tensors and numbers. Outputs are tensors of torch if any of these is;
  // otherwise numpy arrays, and on a device DeviceTensors.
  //
  // Without a stream of its own a session on CUDA works on torch's current one wherever a tensor of torch lies on the
  // device: what torch has enqueued comes before it, what torch enqueues next after it, and torch's allocator gives memory
  // that is free at that place. A stream that the caller chose waits for torch's, by DLPack, and outputs are allocated by
  // the runtime.
  //
  // `again`: DeviceTensors of an earlier run of the same sizes, to be written once more, or None.
  py::tuple run(size_t entry, py::handle leaves, const py::object& again);
  void synchronize();
  void reset();
  void trim();
  py::dict memory() const;
  py::array read_state(size_t index) const;
  void write_state(size_t index, const py::array& value);
  // Calls observer(step dict) after every instruction; None takes it away.
  void set_observer(py::object observer);

 private:
  void follow(uintptr_t stream);
  static int32_t observe(void* user, const ht_step* step);

  ModelHandle model_;
  SessionHandle session_;
  std::shared_ptr<HostBlocks> blocks_ = std::make_shared<HostBlocks>();
  py::object observer_;
  std::exception_ptr observer_error_;
  bool may_follow_;         // torch's stream
  uintptr_t followed_ = 0;  // where it has followed to
  bool running_ = false;    // read and written under the GIL
};

}  // namespace hardtack::py_binding
