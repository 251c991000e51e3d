// An instance of a model: runs the requests that Triton hands it, on one thread at a time.
#ifndef HARDTACK_TRITON_INSTANCE_H
#define HARDTACK_TRITON_INSTANCE_H

#include <deque>
#include <optional>

#include "sequences.h"
#include "staging.h"

namespace hardtack::triton {

class Instance {
 public:
  static Outcome create(TRITONBACKEND_ModelInstance* handle, const LoadedModel& model, std::unique_ptr<Instance>* made);

  /// Answers every request exactly once and gives it back, whatever happens.
  void execute(TRITONBACKEND_Request** requests, std::uint32_t num_requests) noexcept;

 private:
  Instance(TRITONBACKEND_ModelInstance* handle, const LoadedModel& model) : handle_(handle), model_(model) {}

  void give_up(TRITONBACKEND_Request** requests, std::uint32_t num_requests, const Times& times,
               TRITONSERVER_Error_Code code, const char* message);
  void run_groups(std::uint64_t exec_start);
  void run_group(const std::vector<Request*>& group, std::uint64_t exec_start);
  void run_in_sequence(Request* request, std::uint64_t exec_start);
  /// `states_good` is false afterwards if the session's states may be half changed.
  Outcome run(Session* session, const std::vector<Request*>& group, Times* times, bool* states_good);
  Outcome run_joined(Session* session, const std::vector<Request*>& group, Times* times, bool* states_good);

  TRITONBACKEND_ModelInstance* const handle_;
  const LoadedModel& model_;
  Pool own_pool_;                        // with `threads`
  std::optional<serve::Spread> spread_;  // without; outlives the sessions
  Session session_;                      // of a model without states
  std::optional<Sequences> sequences_;   // of a model with states
  Staging staging_;
  std::deque<Request> requests_;  // num_requests_ of them are in use
  std::size_t num_requests_ = 0;
  std::vector<Request*> group_;
  std::vector<ht_tensor> outputs_;
};

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_INSTANCE_H
