#include "request.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace hardtack::triton {
namespace {

std::string text_of(const std::int64_t* shape, std::size_t num_dims) {
  std::string result = "[";
  for (std::size_t d = 0; d < num_dims; ++d) result += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return result + "]";
}

// False where the product passes what memory can hold.
bool nbytes_of(const std::vector<std::int64_t>& shape, std::size_t itemsize, std::size_t* nbytes) {
  *nbytes = itemsize;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(*nbytes, static_cast<std::size_t>(size), nbytes)) return false;
  }
  return true;
}

}  // namespace

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void Request::take(TRITONBACKEND_Request* handle) {
  handle_ = handle;
  response_ = nullptr;
  outcome_.reset();
  sequence_.clear();
  flags_ = 0;
  num_rows_ = 1;
}

void Request::read(const LoadedModel& model) {
  outcome_ = guarded([&] {
    Outcome failed = from_triton(TRITONBACKEND_ResponseNew(&response_, handle_));
    return failed ? failed : read_inputs(model);
  });
}

Outcome Request::read_inputs(const LoadedModel& model) {
  bool cancelled = false;
  if (Outcome failed = from_triton(TRITONBACKEND_RequestIsCancelled(handle_, &cancelled))) return failed;
  if (model.layout.num_sequences > 0) {
    if (Outcome failed = read_sequence()) return failed;
    if (is_filler()) return {};
  }
  if (cancelled) return Fault{TRITONSERVER_ERROR_CANCELLED, "the request was cancelled before it ran"};
  const std::vector<Port>& ports = model.contract.inputs;
  batched_ = model.layout.max_batch_size > 0;
  inputs_.resize(ports.size());
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const char* name = ports[i].name.c_str();
    if (Outcome failed = from_triton(TRITONBACKEND_RequestInput(handle_, name, &inputs_[i].handle))) return failed;
    if (Outcome failed = read_input(ports[i], batched_, &inputs_[i])) return failed;
    if (!batched_) continue;
    if (i == 0) num_rows_ = inputs_[i].shape[0];
    if (inputs_[i].shape[0] != num_rows_) {
      return refuse("input '" + ports[i].name + "' has " + std::to_string(inputs_[i].shape[0]) + " rows, input '" +
                    ports[0].name + "' " + std::to_string(num_rows_));
    }
  }
  return {};
}

Outcome Request::read_input(const Port& port, bool batched, Input* input) const {
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  const std::int64_t* shape = nullptr;
  std::uint32_t num_dims = 0;
  std::uint64_t given = 0;
  if (Outcome failed = from_triton(TRITONBACKEND_InputProperties(input->handle, nullptr, &type, &shape, &num_dims,
                                                                 &given, &input->num_buffers))) {
    return failed;
  }
  if (type != port.type) {
    return refuse("input '" + port.name + "' is " + type_name(type) + ", the model takes " + type_name(port.type));
  }
  const std::size_t rank = port.dims.size();
  // A tensor without dimensions behind the batch is [1] for Triton.
  const bool scalar = rank == (batched ? 1U : 0U) && num_dims == rank + 1 && shape[rank] == 1;
  if (num_dims != rank && !scalar) {
    return refuse("input '" + port.name + "' has the shape " + text_of(shape, num_dims) + ", the model takes " +
                  port.text());
  }
  input->shape.assign(shape, shape + rank);
  if (!nbytes_of(input->shape, port.itemsize, &input->nbytes) || input->nbytes != given) {
    return refuse("input '" + port.name + "' of shape " + text_of(shape, num_dims) + " comes with " +
                  std::to_string(given) + " bytes, which is not what " + port.text() + " takes");
  }
  input->in_place = nullptr;
  if (input->num_buffers != 1 || port.channels_last) return {};
  const void* data = nullptr;
  std::uint64_t nbytes = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  std::int64_t memory_id = 0;
  if (Outcome f = from_triton(TRITONBACKEND_InputBuffer(input->handle, 0, &data, &nbytes, &memory, &memory_id)))
    return f;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % port.itemsize == 0;
  if (memory != TRITONSERVER_MEMORY_GPU && aligned && nbytes == input->nbytes) input->in_place = data;
  return {};
}

Outcome Request::read_sequence() {
  if (Outcome failed = from_triton(TRITONBACKEND_RequestFlags(handle_, &flags_))) return failed;
  std::uint64_t number = 0;
  if (TRITONSERVER_Error* not_a_number = TRITONBACKEND_RequestCorrelationId(handle_, &number)) {
    TRITONSERVER_ErrorDelete(not_a_number);
    const char* text = nullptr;
    if (Outcome failed = from_triton(TRITONBACKEND_RequestCorrelationIdString(handle_, &text))) return failed;
    // The mark keeps the text "7" apart from the number 7.
    if (*text != 0) sequence_ = std::string("\"") + text + "\"";
  } else if (number != 0) {
    sequence_ = std::to_string(number);
  }
  return {};
}

bool Request::starts_sequence() const { return (flags_ & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0; }
bool Request::ends_sequence() const { return (flags_ & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) != 0; }

bool Request::joins(const Request& other) const {
  if (!batched_) return false;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const auto &a = inputs_[i].shape, &b = other.inputs_[i].shape;
    if (!std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end())) return false;
  }
  return true;
}

Outcome Request::copy_input(std::size_t input, char* to) const {
  const Input& source = inputs_[input];
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < source.num_buffers; ++i) {
    const void* data = nullptr;
    std::uint64_t nbytes = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    std::int64_t memory_id = 0;
    if (Outcome f = from_triton(TRITONBACKEND_InputBuffer(source.handle, i, &data, &nbytes, &memory, &memory_id)))
      return f;
    if (memory == TRITONSERVER_MEMORY_GPU) {
      return Fault{TRITONSERVER_ERROR_UNSUPPORTED, "an input lies in GPU memory; Hardtack's backend takes host memory"};
    }
    if (nbytes > source.nbytes - done) return refuse("an input has more bytes than its shape says");
    if (nbytes != 0) std::memcpy(to + done, data, nbytes);
    done += nbytes;
  }
  if (done != source.nbytes) return refuse("an input has fewer bytes than its shape says");
  return {};
}

void Request::respond(const LoadedModel& model, const ht_tensor* outputs, Rows rows) {
  outcome_ = guarded([&] { return write_outputs(model, outputs, rows); });
}

Outcome Request::write_outputs(const LoadedModel& model, const ht_tensor* outputs, Rows rows) {
  std::uint32_t num_wanted = 0;
  if (Outcome failed = from_triton(TRITONBACKEND_RequestOutputCount(handle_, &num_wanted))) return failed;
  const std::vector<Port>& ports = model.contract.outputs;
  for (std::uint32_t w = 0; w < num_wanted; ++w) {
    const char* name = nullptr;
    if (Outcome failed = from_triton(TRITONBACKEND_RequestOutputName(handle_, w, &name))) return failed;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].name != name) continue;
      if (Outcome failed = write_output(model, i, outputs[i], rows)) return failed;
    }
  }
  return {};
}

Outcome Request::write_output(const LoadedModel& model, std::size_t index, const ht_tensor& tensor, Rows rows) {
  const Port& port = model.contract.outputs[index];
  output_shape_.assign(tensor.shape, tensor.shape + tensor.ndim);
  std::size_t nbytes = 0;
  nbytes_of(output_shape_, port.itemsize, &nbytes);
  const char* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  if (batched_) {
    if (output_shape_[0] != rows.total) {
      return Fault{TRITONSERVER_ERROR_INTERNAL, "output '" + port.name + "' has " + std::to_string(output_shape_[0]) +
                                                    " rows for " + std::to_string(rows.total) + " of the inputs"};
    }
    const std::size_t row_nbytes = rows.total == 0 ? 0 : nbytes / static_cast<std::size_t>(rows.total);
    data += row_nbytes * static_cast<std::size_t>(rows.first);
    nbytes = row_nbytes * static_cast<std::size_t>(rows.num);
    output_shape_[0] = rows.num;
  }
  if (port.dims.size() == (batched_ ? 1U : 0U) && !model.layout.reshaped[index]) output_shape_.push_back(1);
  TRITONBACKEND_Output* output = nullptr;
  if (Outcome failed = from_triton(TRITONBACKEND_ResponseOutput(response_, &output, port.name.c_str(), port.type,
                                                                output_shape_.data(),
                                                                static_cast<std::uint32_t>(output_shape_.size())))) {
    return failed;
  }
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  std::int64_t memory_id = 0;
  if (Outcome failed = from_triton(TRITONBACKEND_OutputBuffer(output, &buffer, nbytes, &memory, &memory_id)))
    return failed;
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return Fault{TRITONSERVER_ERROR_UNSUPPORTED,
                 "output '" + port.name + "' is wanted in GPU memory; Hardtack's backend gives host memory"};
  }
  if (nbytes != 0) std::memcpy(buffer, data, nbytes);
  return {};
}

void Request::finish(TRITONBACKEND_ModelInstance* instance, const Times& times) {
  send(instance, times, to_triton(outcome_));
}

void Request::give_up(TRITONBACKEND_ModelInstance* instance, const Times& times, TRITONSERVER_Error_Code code,
                      const char* message) {
  if (response_ == nullptr) log_if_failed(TRITONBACKEND_ResponseNew(&response_, handle_));
  send(instance, times, TRITONSERVER_ErrorNew(code, message));
}

// Takes the error over. Nothing here needs memory of the backend's own.
void Request::send(TRITONBACKEND_ModelInstance* instance, const Times& times, TRITONSERVER_Error* error) {
  const std::uint64_t end = now_ns();
  const std::uint64_t compute_start = times.compute_start == 0 ? end : times.compute_start;
  const std::uint64_t compute_end = times.compute_end == 0 ? end : times.compute_end;
  TRITONBACKEND_Request* const handle = std::exchange(handle_, nullptr);
  TRITONBACKEND_Response* const response = std::exchange(response_, nullptr);
  log_if_failed(TRITONBACKEND_ModelInstanceReportStatistics(instance, handle, error == nullptr, times.exec_start,
                                                            compute_start, compute_end, end));
  if (response != nullptr) {
    log_if_failed(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  } else {
    log(TRITONSERVER_LOG_ERROR,
        error == nullptr ? "a request could not be answered" : TRITONSERVER_ErrorMessage(error));
  }
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
  log_if_failed(TRITONBACKEND_RequestRelease(handle, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace hardtack::triton
