#include "server/core/lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hardtack::serve {

namespace {

std::uint64_t ns_between(Clock::time_point a, Clock::time_point b) {
  return b <= a ? 0 : static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(b - a).count());
}

Error no_memory(std::size_t nbytes) {
  return {Code::kNoMemory, "no memory for " + std::to_string(nbytes) + " bytes; try again later"};
}

Failure failure(ht_status* status) {
  if (status == nullptr) return std::nullopt;
  return from_status(status);
}

std::int64_t rows_of(const Requests& batch) {
  std::int64_t rows = 0;
  for (const Pending& pending : batch) rows += pending.rows;
  return rows;
}

std::size_t nbytes_of(const Pending& pending) {
  std::size_t nbytes = 0;
  for (const Input& input : pending.request.inputs) nbytes += input.nbytes;
  return nbytes;
}

std::size_t nbytes_of(const Requests& batch) {
  std::size_t nbytes = 0;
  for (const Pending& pending : batch) nbytes += nbytes_of(pending);
  return nbytes;
}

// What another composition of the batch may not suffer from: one request's data, or the sum of the rows.
bool may_be_one_request(const Error& error) {
  return error.code == Code::kInvalid || error.code == Code::kModel || error.code == Code::kNoMemory ||
         error.code == Code::kRunLimit;
}

}  // namespace

Outcome<std::unique_ptr<Lane>> Lane::create(const ModelVersion& version, const ht_session_options& options,
                                            Workers& workers) {
  auto lane = std::unique_ptr<Lane>(new Lane(version));
  ht_session_options mine = options;
  if (workers.pool.get() != nullptr) mine.parallel = &lane->spread_.emplace(workers).parallel();
  auto session = version.bundle().new_session(&mine);
  if (!session.ok()) return Error{Code::kInvalid, session.status().message()};
  lane->session_ = std::move(*session);
  return lane;
}

// The session goes on holding the states of `held` where this fails.
Failure Lane::spill() {
  if (held == nullptr) return std::nullopt;
  std::vector<std::vector<std::byte>> saved =
      std::exchange(held->saved, {});  // what they were before; its memory serves
  saved.resize(version_.info().num_states);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    saved[i].resize(state(i)->nbytes);
    if (Failure failed =
            failure(ht_session_read_state(session_.get(), state(i)->name, saved[i].data(), saved[i].size()))) {
      return failed;
    }
  }
  held->saved = std::move(saved);
  return std::nullopt;
}

Failure Lane::restore(const SequenceState& sequence) {
  for (std::size_t i = 0; i < sequence.saved.size(); ++i) {
    if (Failure failed = failure(ht_session_write_state(session_.get(), state(i)->name, sequence.saved[i].data(),
                                                        sequence.saved[i].size()))) {
      return failed;
    }
  }
  return std::nullopt;
}

// The states that the request is to find: its sequence's, or the initial ones. (The batcher moves `held` afterwards.)
Failure Lane::prepare(const Pending& pending) {
  if (!version_.has_states()) return std::nullopt;
  SequenceState* wanted = pending.sequence;
  if (held != wanted) {
    if (Failure failed = spill()) return failed;
  }
  if (wanted == nullptr || pending.request.sequence.start) return failure(ht_session_reset(session_.get()));
  return held == wanted ? std::nullopt : restore(*wanted);
}

Failure Lane::fill_inputs(const Requests& batch, std::int64_t rows) {
  const Pending& first = batch.front();
  const std::size_t count = first.inputs.size();
  inputs_.assign(count, ht_tensor{});
  shapes_.resize(count);
  staging_.resize(std::max(staging_.size(), count));
  for (std::size_t i = 0; i < count; ++i) {
    const Input& input = first.request.inputs[first.inputs[i]];
    shapes_[i] = input.shape;
    const void* data = input.data;
    if (batch.size() > 1) {
      std::size_t nbytes = 0;
      for (const Pending& pending : batch) nbytes += pending.request.inputs[pending.inputs[i]].nbytes;
      if (staging_[i].nbytes < nbytes) {
        staging_[i] = {};
        staging_[i].memory = allocate(nbytes);
        if (staging_[i].memory == nullptr) return no_memory(nbytes);
        staging_[i].nbytes = nbytes;
      }
      std::byte* to = staging_[i].memory.get();
      for (const Pending& pending : batch) {
        const Input& part = pending.request.inputs[pending.inputs[i]];
        if (part.nbytes > 0) std::memcpy(to, part.data, part.nbytes);
        to += part.nbytes;
      }
      shapes_[i][0] = rows;
      data = staging_[i].memory.get();
    }
    static std::int64_t nothing = 0;  // tensors without elements may come without memory
    ht_tensor& tensor = inputs_[i];
    tensor.data = data == nullptr ? &nothing : const_cast<void*>(data);
    tensor.device.device_type = 1;
    tensor.ndim = static_cast<std::int32_t>(shapes_[i].size());
    tensor.dtype = input.dtype;
    tensor.shape = shapes_[i].data();
  }
  return std::nullopt;
}

// Copies the request's rows of what the session computed into memory of the response's own.
Failure Lane::take_outputs(Pending& pending, std::int64_t first_row, std::int64_t all_rows) const {
  Response& response = pending.response;
  const std::int64_t rows = pending.rows;
  response.outputs.clear();
  response.outputs.reserve(pending.outputs.size());
  constexpr std::size_t kAlignment = 64;
  std::size_t total = 0;
  for (const std::size_t index : pending.outputs) {
    const ht_tensor& tensor = outputs_[index];
    Output output;
    output.name = pending.entry->outputs[index].name;
    output.dtype = tensor.dtype;
    output.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
    if (rows != all_rows) output.shape[0] = rows;
    output.nbytes = static_cast<std::size_t>(numel(output.shape).value_or(0)) * itemsize(tensor.dtype);
    total += (output.nbytes + kAlignment - 1) / kAlignment * kAlignment;
    response.outputs.push_back(std::move(output));
  }
  std::shared_ptr<std::byte> memory = allocate(total);
  if (memory == nullptr) return no_memory(total);
  std::byte* to = memory.get();
  for (std::size_t i = 0; i < pending.outputs.size(); ++i) {
    const ht_tensor& tensor = outputs_[pending.outputs[i]];
    Output& output = response.outputs[i];
    const auto* from = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
    if (rows > 0 && rows != all_rows)
      from += output.nbytes / static_cast<std::size_t>(rows) * static_cast<std::size_t>(first_row);
    if (output.nbytes > 0) std::memcpy(to, from, output.nbytes);
    output.data = to;
    to += (output.nbytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  response.memory = std::move(memory);
  return std::nullopt;
}

Failure Lane::run_session(const Entry& entry, std::size_t nbytes) {
  std::optional<Spread::Run> run;
  if (spread_) run.emplace(*spread_, &entry, nbytes);
  {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    began_ = Clock::now();
  }
  ht_status* const status = ht_session_run(session_.get(), entry.name.c_str(), inputs_.data(), inputs_.size(),
                                           outputs_.data(), outputs_.size());
  {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    began_ = Clock::time_point::max();
  }
  Failure failed = failure(status);
  if (run && !failed) run->succeeded();
  if (failed && failed->code == Code::kCancelled) return why_stopped(entry);
  return failed;
}

Error Lane::why_stopped(const Entry& entry) const {
  return {Code::kRunLimit, "the run of entry point \"" + entry.name + "\" of model \"" + version_.model() +
                               "\" was stopped after " + std::to_string(version_.options().max_run.count()) +
                               " ms, which is as long as a run may take here (--max-run-ms)"};
}

Clock::time_point Lane::began() const {
  const std::lock_guard<std::mutex> lock(run_mutex_);
  return began_;
}

// The run looks at what it is asked only after it has begun: whoever finds it late asks again.
void Lane::stop_run(Clock::time_point before) {
  const std::lock_guard<std::mutex> lock(run_mutex_);
  if (began_ >= before) return;
  session_.interrupt();
}

bool Lane::is_short(const Pending& pending) const {
  return spread_ && spread_->is_short(pending.entry, nbytes_of(pending));
}

Failure Lane::execute(Requests& batch, Statistics::Run& run) {
  const Pending& first = batch.front();
  const auto start = Clock::now();
  run.rows = rows_of(batch);
  if (Failure failed = prepare(first)) return failed;
  if (Failure failed = fill_inputs(batch, run.rows)) return failed;
  const auto filled = Clock::now();
  outputs_.assign(first.entry->outputs.size(), ht_tensor{});
  if (Failure failed = run_session(*first.entry, nbytes_of(batch))) return failed;
  const auto ran = Clock::now();
  std::int64_t row = 0;
  for (Pending& pending : batch) {
    if (Failure failed = take_outputs(pending, row, run.rows)) return failed;
    row += pending.rows;
  }
  run.input_ns = ns_between(start, filled);
  run.infer_ns = ns_between(filled, ran);
  run.output_ns = ns_between(ran, Clock::now());
  return std::nullopt;
}

void Lane::run(Requests& batch, Statistics& statistics) noexcept {
  const auto start = Clock::now();
  Statistics::Run numbers;
  Failure failed;
  try {
    failed = execute(batch, numbers);
  } catch (...) {
    failed = from_exception();
  }
  if (failed && batch.size() > 1 && may_be_one_request(*failed)) {
    Requests rest, alone;
    rest.swap(batch);
    while (!rest.empty()) {
      alone.splice(alone.end(), rest, rest.begin());
      run(alone, statistics);
      batch.splice(batch.end(), alone);
    }
    return;
  }
  if (!failed) statistics.ran(numbers);
  const auto end = Clock::now();
  for (Pending& pending : batch) {
    const std::uint64_t total = ns_between(pending.request.arrived, end);
    if (failed) {
      pending.fail(*failed);
      statistics.failed(*failed, total);
    } else {
      statistics.succeeded(pending.rows, total, ns_between(pending.request.arrived, start), numbers);
    }
  }
}

}  // namespace hardtack::serve
