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
using ModelHandle = std::unique_ptr<ht_model, ModelFree>;
using PoolHandle = std::unique_ptr<ht_pool, PoolFree>;
using SessionHandle = std::unique_ptr<ht_session, SessionFree>;

// Two threads at once in one session, or a call from an observer.
struct SessionBusy : std::exception {
  const char* what() const noexcept override {
    return "the session is running; each thread needs a session of its own (model.session())";
  }
};

class PySession {
 public:
  PySession(ht_model* model, ht_pool* pool, uint64_t max_nbytes);

  // Runs entry point number `entry` on a sequence of tensors.
  py::tuple run(size_t entry, py::handle leaves, bool as_dlpack);
  void reset();
  void trim();
  py::dict memory() const;
  py::array read_state(size_t index) const;
  void write_state(size_t index, const py::array& value);
  // Calls observer(step dict) after every instruction; None takes it away.
  void set_observer(py::object observer);

 private:
  static int32_t observe(void* user, const ht_step* step);

  ht_model* model_;  // kept alive by the session
  SessionHandle session_;
  py::object observer_;
  std::exception_ptr observer_error_;
  bool running_ = false;  // read and written under the GIL
};

}  // namespace hardtack::py_binding
