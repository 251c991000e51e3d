#include "instance.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

namespace hardtack::triton {
namespace {

// A shape is bound once for each batch size that the batcher makes; keep that many, within reason.
std::int32_t num_cached_shapes(const LoadedModel& model) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(model.layout.max_batch_size, 16, 256));
}

}  // namespace

Outcome Instance::create(TRITONBACKEND_ModelInstance* handle, const LoadedModel& model,
                         std::unique_ptr<Instance>* made) {
  std::unique_ptr<Instance> instance(new Instance(handle, model));
  ht_session_options options = ht_session_options_default();
  options.max_cached_shapes = num_cached_shapes(model);
  if (model.settings.threads > 0) {
    Result<Pool> pool = Pool::create(model.settings.threads);
    if (!pool.ok()) return from_status(pool.status(), model.label + ": the parameter \"threads\": ");
    instance->own_pool_ = std::move(*pool);
    options.pool = instance->own_pool_.get();
  } else {
    options.parallel = &instance->spread_.emplace(model.backend->workers).parallel();
  }
  if (model.contract.has_states) {
    instance->sequences_.emplace(model, options, model.layout.num_sequences);
  } else {
    Result<Session> session = model.model.new_session(&options);
    if (!session.ok()) return from_status(session.status(), model.label + ": ");
    instance->session_ = std::move(*session);
  }
  *made = std::move(instance);
  return {};
}

void Instance::execute(TRITONBACKEND_Request** requests, std::uint32_t num_requests) noexcept {
  const Times times{now_ns(), 0, 0};
  num_requests_ = 0;
  try {
    if (requests_.size() < num_requests) requests_.resize(num_requests);
    for (; num_requests_ < num_requests; ++num_requests_) requests_[num_requests_].take(requests[num_requests_]);
    for (std::size_t i = 0; i < num_requests_; ++i) requests_[i].read(model_);
    run_groups(times.exec_start);
  } catch (const std::bad_alloc&) {
    give_up(requests, num_requests, times, TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
  } catch (const std::exception& problem) {
    give_up(requests, num_requests, times, TRITONSERVER_ERROR_INTERNAL, problem.what());
  }
}

// Those that were not answered yet.
void Instance::give_up(TRITONBACKEND_Request** requests, std::uint32_t num_requests, const Times& times,
                       TRITONSERVER_Error_Code code, const char* message) {
  for (std::size_t i = num_requests_; i < num_requests; ++i) {
    Request request;
    request.take(requests[i]);
    request.give_up(handle_, times, code, message);
  }
  for (std::size_t i = 0; i < num_requests_; ++i) {
    if (requests_[i].open()) requests_[i].give_up(handle_, times, code, message);
  }
}

void Instance::run_groups(std::uint64_t exec_start) {
  for (std::size_t i = 0; i < num_requests_; ++i) {
    Request& first = requests_[i];
    if (!first.open()) continue;
    if (first.outcome() || (model_.layout.num_sequences > 0 && first.is_filler())) {
      // One that is malformed is as if it had not come; one that was cancelled leaves a hole in its sequence.
      if (sequences_ && first.outcome()) sequences_->done(first, first.outcome()->code != TRITONSERVER_ERROR_CANCELLED);
      first.finish(handle_, Times{exec_start, 0, 0});
      continue;
    }
    if (sequences_) {
      run_in_sequence(&first, exec_start);
      continue;
    }
    group_.assign(1, &first);
    for (std::size_t j = i + 1; j < num_requests_; ++j) {
      Request& other = requests_[j];
      const bool waits = other.open() && !other.outcome() && !(model_.layout.num_sequences > 0 && other.is_filler());
      if (waits && first.joins(other)) group_.push_back(&other);
    }
    run_group(group_, exec_start);
  }
}

// One bad request must not spoil the others: if a batch fails, each of its requests runs alone.
void Instance::run_group(const std::vector<Request*>& group, std::uint64_t exec_start) {
  Times times{exec_start, 0, 0};
  bool states_good = true;
  Outcome failed = run(&session_, group, &times, &states_good);
  if (failed && group.size() > 1) {
    for (Request* request : group) run_group({request}, exec_start);
    return;
  }
  if (failed) group[0]->fail(std::move(failed));
  for (Request* request : group) request->finish(handle_, times);
}

void Instance::run_in_sequence(Request* request, std::uint64_t exec_start) {
  Times times{exec_start, 0, 0};
  Session* session = nullptr;
  bool states_good = false;
  Outcome failed = guarded([&] { return sequences_->find(*request, &session); });
  if (!failed) failed = run(session, {request}, &times, &states_good);
  if (failed) {
    request->fail(std::move(failed));
  } else if (request->outcome()) {
    states_good = false;  // they have moved on, but the client gets an error and cannot know that
  }
  sequences_->done(*request, states_good);
  request->finish(handle_, times);
}

Outcome Instance::run(Session* session, const std::vector<Request*>& group, Times* times, bool* states_good) {
  *states_good = true;
  return guarded([&] { return run_joined(session, group, times, states_good); });
}

Outcome Instance::run_joined(Session* session, const std::vector<Request*>& group, Times* times, bool* states_good) {
  if (Outcome failed = staging_.join(model_, group)) return failed;
  outputs_.resize(model_.contract.outputs.size());
  std::memset(outputs_.data(), 0, outputs_.size() * sizeof(ht_tensor));
  const std::vector<ht_tensor>& inputs = staging_.inputs();
  times->compute_start = now_ns();
  *states_good = false;
  std::optional<serve::Spread::Run> running;
  if (spread_) running.emplace(*spread_, this, staging_.nbytes(), 0);
  const Status status =
      session->run(model_.contract.entry.c_str(), inputs.data(), inputs.size(), outputs_.data(), outputs_.size());
  times->compute_end = now_ns();
  if (running && status.ok()) running->succeeded(std::chrono::nanoseconds(times->compute_end - times->compute_start));
  running.reset();
  // What breaks the contract is refused before anything runs.
  *states_good = status.ok() || status.code() == HT_CONTRACT || status.code() == HT_INVALID_ARGUMENT;
  if (!status.ok()) return from_status(status);
  Rows rows{0, 0, staging_.num_rows()};
  for (Request* request : group) {
    rows.num = request->num_rows();
    request->respond(model_, outputs_.data(), rows);
    rows.first += rows.num;
  }
  log_if_failed(TRITONBACKEND_ModelInstanceReportBatchStatistics(handle_, static_cast<std::uint64_t>(rows.total),
                                                                 times->exec_start, times->compute_start,
                                                                 times->compute_end, now_ns()));
  return {};
}

}  // namespace hardtack::triton
