#include "server/core/lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/core/memory.h"

namespace hardtack::serve {

namespace {

std::uint64_t ns_between(Clock::time_point a, Clock::time_point b) {
  return b <= a ? 0 : static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(b - a).count());
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

// An input of shape [0,M] takes no bytes, and what is made of it may take M. Nothing for other inputs.
std::size_t nbytes_without_zeros(const Input& input) {
  if (input.nbytes > 0) return 0;
  auto product = static_cast<double>(itemsize(input.dtype));
  for (const std::int64_t size : input.shape) product *= static_cast<double>(std::max<std::int64_t>(size, 1));
  return static_cast<std::size_t>(std::min(product, 1e15));
}

std::size_t nbytes_of(const Pending& pending) {
  std::size_t nbytes = 0;
  for (const Input& input : pending.request.inputs) nbytes += std::max(input.nbytes, nbytes_without_zeros(input));
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
                                            Workers& workers, Budget& budget) {
  auto lane = std::unique_ptr<Lane>(new Lane(version, budget));
  ht_session_options mine = options;
  if (workers.pool.get() != nullptr) mine.parallel = &lane->spread_.emplace(workers).parallel();
  auto session = version.bundle().new_session(&mine);
  if (!session.ok()) return Error{Code::kInvalid, session.status().message()};
  lane->session_ = std::move(*session);
  return lane;
}

std::size_t Lane::states_nbytes() const {
  std::size_t nbytes = 0;
  for (std::size_t i = 0; i < version_.info().num_states; ++i) nbytes += state(i)->nbytes;
  return nbytes;
}

Outcome<std::shared_ptr<std::byte>> Lane::read_states() {
  const std::size_t nbytes = states_nbytes();
  std::shared_ptr<std::byte> states = budget_.allocate(nbytes);
  if (states == nullptr) return budget_.refusal("the states of a sequence", nbytes);
  std::byte* to = states.get();
  for (std::size_t i = 0; i < version_.info().num_states; to += state(i++)->nbytes) {
    if (Failure failed = failure(ht_session_read_state(session_.get(), state(i)->name, to, state(i)->nbytes))) {
      return *failed;
    }
  }
  return states;
}

Failure Lane::write_states(const std::byte* states) {
  for (std::size_t i = 0; i < version_.info().num_states; states += state(i++)->nbytes) {
    if (Failure failed = failure(ht_session_write_state(session_.get(), state(i)->name, states, state(i)->nbytes))) {
      return failed;
    }
  }
  return std::nullopt;
}

// The session goes on holding the states of `held` where this fails.
Failure Lane::spill() {
  if (held == nullptr) return std::nullopt;
  held->saved = nullptr;  // what they were before
  auto saved = read_states();
  if (!saved.ok()) return saved.error();
  held->saved = std::move(*saved);
  return std::nullopt;
}

// The states that the request is to find: its sequence's, or the initial ones. (The batcher moves `held` afterwards.)
Failure Lane::prepare(Pending& pending) {
  before_ = nullptr;
  if (!version_.has_states()) return std::nullopt;
  SequenceState* wanted = pending.sequence;
  const bool start = wanted == nullptr || pending.request.sequence.start;
  if (held != wanted) {
    if (Failure failed = spill()) return failed;
    if (!start) before_ = wanted->saved;
  } else if (wanted != nullptr && wanted->alive && pending.request.delivery && pending.request.delivery->may_fail) {
    auto states = read_states();
    if (!states.ok()) return states.error();
    before_ = std::move(*states);
  }
  pending.states = Pending::States::kNobodys;
  if (start) {
    if (Failure failed = failure(ht_session_reset(session_.get()))) return failed;
  } else if (held != wanted) {
    if (Failure failed = write_states(wanted->saved.get())) return failed;
  }
  pending.states = start ? Pending::States::kInitial : Pending::States::kFound;
  return std::nullopt;
}

// Before the states are touched: everything that can fail without the run, and the memory that the answer takes.
Failure Lane::prepare_answer(Pending& pending) {
  outputs_.assign(pending.entry->outputs.size(), ht_tensor{});
  if (Failure failed = failure(ht_session_bind(session_.get(), pending.entry->name.c_str(), inputs_.data(),
                                               inputs_.size(), outputs_.data(), outputs_.size()))) {
    return in_words(std::move(failed));
  }
  // Sizes that the run computes are known behind it only.
  for (const std::size_t index : pending.outputs) {
    const ht_tensor& tensor = outputs_[index];
    if (std::any_of(tensor.shape, tensor.shape + tensor.ndim, [](std::int64_t size) { return size < 0; }))
      return std::nullopt;
  }
  if (Failure failed = make_room(pending, pending.rows)) return failed;
  if (!pending.request.delivery) return std::nullopt;
  return pending.request.delivery->check(pending.response.outputs);
}

// The answer cannot be made: the sequence finds what it had.
void Lane::put_back(Pending& pending) {
  if (pending.states == Pending::States::kMovedOn && before_ != nullptr && !write_states(before_.get())) {
    pending.states = Pending::States::kFound;
  } else if (pending.sequence != nullptr && pending.sequence->saved != nullptr) {
    pending.states = Pending::States::kNobodys;
  }
}

// What a client can do about a lack of memory.
Failure Lane::in_words(Failure failed) const {
  if (failed && failed->code == Code::kNoMemory && !version_.on_gpu()) {
    failed->sentence += "; all requests together may take " + std::to_string(budget_.limit()) +
                        " bytes (--max-memory): try again later, or send less";
  }
  return failed;
}

void Lane::trim() noexcept {
  constexpr std::uint64_t kMuch = 1U << 20;
  const ht_memory_info holds = session_.memory();
  std::size_t staged = 0;
  for (const Staging& one : staging_) staged += one.nbytes;
  if (holds.arena_nbytes + holds.workspace_nbytes + holds.outputs_nbytes + holds.staging_nbytes + staged < kMuch)
    return;
  (void)session_.trim();
  staging_.clear();
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
        staging_[i].memory = budget_.allocate(nbytes);
        if (staging_[i].memory == nullptr) return budget_.refusal("a batch", nbytes);
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

// The answer's outputs as `outputs_` describe them, and memory for them; what they hold comes later.
Failure Lane::make_room(Pending& pending, std::int64_t all_rows) const {
  Response& response = pending.response;
  response.outputs.clear();
  response.outputs.reserve(pending.outputs.size());
  std::size_t total = 0;
  for (const std::size_t index : pending.outputs) {
    const ht_tensor& tensor = outputs_[index];
    Output output;
    output.name = pending.entry->outputs[index].name;
    output.dtype = tensor.dtype;
    output.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
    if (pending.rows != all_rows) output.shape[0] = pending.rows;
    output.nbytes = static_cast<std::size_t>(numel(output.shape).value_or(0)) * itemsize(tensor.dtype);
    total += aligned_up(output.nbytes);
    response.outputs.push_back(std::move(output));
  }
  response.memory = budget_.allocate(total);
  if (response.memory == nullptr) return budget_.refusal("the outputs", total);
  return std::nullopt;
}

// Copies the request's rows of what the session computed into memory of the response's own.
void Lane::take_outputs(Pending& pending, std::int64_t first_row, std::int64_t all_rows) const {
  const std::int64_t rows = pending.rows;
  auto* to = const_cast<std::byte*>(pending.response.memory.get());
  for (std::size_t i = 0; i < pending.outputs.size(); ++i) {
    const ht_tensor& tensor = outputs_[pending.outputs[i]];
    Output& output = pending.response.outputs[i];
    const auto* from = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
    if (rows > 0 && rows != all_rows)
      from += output.nbytes / static_cast<std::size_t>(rows) * static_cast<std::size_t>(first_row);
    if (output.nbytes > 0) std::memcpy(to, from, output.nbytes);
    output.data = to;
    to += aligned_up(output.nbytes);
  }
}

Failure Lane::run_session(const Entry& entry, std::size_t nbytes, std::uint64_t client, Times& times) {
  std::optional<Spread::Run> run;
  if (spread_) run.emplace(*spread_, &entry, nbytes, client);
  times.began = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    began_ = times.began;
  }
  ht_status* const status = ht_session_run(session_.get(), entry.name.c_str(), inputs_.data(), inputs_.size(),
                                           outputs_.data(), outputs_.size());
  {
    const std::lock_guard<std::mutex> lock(run_mutex_);
    began_ = Clock::time_point::max();
  }
  times.ran = Clock::now();
  Failure failed = failure(status);
  if (run && !failed) run->succeeded(times.ran - times.began);
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
  return spread_ && !pending.entry->loops && spread_->is_short(pending.entry, nbytes_of(pending));
}

Failure Lane::execute(Requests& batch, Times& times) {
  Pending& first = batch.front();
  const std::int64_t rows = rows_of(batch);
  if (Failure failed = fill_inputs(batch, rows)) return failed;
  if (version_.has_states()) {
    if (Failure failed = prepare_answer(first)) return failed;
    if (Failure failed = prepare(first)) return failed;
  }
  outputs_.assign(first.entry->outputs.size(), ht_tensor{});
  if (Failure failed = run_session(*first.entry, nbytes_of(batch), first.request.client, times)) {
    const bool began = failed->code != Code::kInvalid && failed->code != Code::kNoMemory;
    if (began) first.states = Pending::States::kMovedOn;
    return in_words(std::move(failed));
  }
  first.states = Pending::States::kMovedOn;
  Failure failed = answer(batch, rows);
  if (failed) put_back(first);
  return failed;
}

Failure Lane::answer(Requests& batch, std::int64_t rows) {
  std::int64_t row = 0;
  for (Pending& pending : batch) {
    if (!version_.has_states() || pending.response.outputs.size() < pending.outputs.size()) {
      if (Failure failed = make_room(pending, rows)) return failed;
    }
    take_outputs(pending, row, rows);
    row += pending.rows;
  }
  const Pending& first = batch.front();
  if (!first.request.delivery) return std::nullopt;
  try {
    return first.request.delivery->make(batch.front().response);
  } catch (...) {
    return from_exception();
  }
}

void Lane::run(Requests& batch, Statistics& statistics) noexcept {
  Times times;
  times.start = Clock::now();
  Failure failed;
  try {
    failed = execute(batch, times);
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
  const auto end = Clock::now();
  const Statistics::Run numbers{rows_of(batch), ns_between(times.start, times.began),
                                ns_between(times.began, times.ran), ns_between(times.ran, end)};
  if (!failed) statistics.ran(numbers);
  for (Pending& pending : batch) {
    const std::uint64_t total = ns_between(pending.request.arrived, end);
    if (failed) {
      pending.fail(*failed);
      statistics.failed(*failed, total);
    } else {
      statistics.succeeded(pending.rows, total, ns_between(pending.request.arrived, times.start), numbers);
    }
  }
}

}  // namespace hardtack::serve
