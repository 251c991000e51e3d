// A request of Triton's, from the moment that the backend gets it until it is answered and given back.
#ifndef HARDTACK_TRITON_REQUEST_H
#define HARDTACK_TRITON_REQUEST_H

#include "loaded_model.h"

namespace hardtack::triton {

/// Nanoseconds of the steady clock, as Triton's statistics want them.
std::uint64_t now_ns();

struct Times {
  std::uint64_t exec_start = 0, compute_start = 0, compute_end = 0;
};

/// Rows of a run's outputs that belong to one request.
struct Rows {
  std::int64_t first, num, total;
};

/// Used again for many requests, so that it keeps its memory.
class Request {
 public:
  /// Takes a request over; it is open from here on until finish() or give_up().
  void take(TRITONBACKEND_Request* handle);
  /// Looks at its inputs; what is wrong with it is kept in outcome().
  void read(const LoadedModel& model);

  const Outcome& outcome() const { return outcome_; }
  void fail(Outcome outcome) { outcome_ = std::move(outcome); }
  bool open() const { return handle_ != nullptr; }

  /// The size of the batch dimension; 1 where there is none.
  std::int64_t num_rows() const { return num_rows_; }
  /// Both can be one run: same sizes behind the batch dimension.
  bool joins(const Request& other) const;
  const std::vector<std::int64_t>& shape(std::size_t input) const { return inputs_[input].shape; }
  std::size_t nbytes(std::size_t input) const { return inputs_[input].nbytes; }
  /// The input where it lies, if that is one aligned piece of host memory; else null.
  const void* in_place(std::size_t input) const { return inputs_[input].in_place; }
  Outcome copy_input(std::size_t input, char* to) const;

  /// Sequence batcher: filler for a slot without a request; to be answered, not run.
  bool is_filler() const { return sequence_.empty(); }
  /// The sequence's id as text; "": none.
  const std::string& sequence() const { return sequence_; }
  bool starts_sequence() const;
  bool ends_sequence() const;

  /// Makes the response out of the outputs that were asked for; a failure is kept in outcome().
  void respond(const LoadedModel& model, const ht_tensor* outputs, Rows rows);
  /// Reports statistics, sends the response or the error, gives the request back.
  void finish(TRITONBACKEND_ModelInstance* instance, const Times& times);
  /// The same with an error for which there is no memory to make an outcome of.
  void give_up(TRITONBACKEND_ModelInstance* instance, const Times& times, TRITONSERVER_Error_Code code,
               const char* message);

 private:
  struct Input {
    TRITONBACKEND_Input* handle = nullptr;
    std::vector<std::int64_t> shape;
    std::size_t nbytes = 0;
    std::uint32_t num_buffers = 0;
    const void* in_place = nullptr;
  };

  Outcome read_inputs(const LoadedModel& model);
  Outcome read_input(const Port& port, bool batched, Input* input) const;
  Outcome read_sequence();
  Outcome write_outputs(const LoadedModel& model, const ht_tensor* outputs, Rows rows);
  Outcome write_output(const LoadedModel& model, std::size_t index, const ht_tensor& tensor, Rows rows);
  void send(TRITONBACKEND_ModelInstance* instance, const Times& times, TRITONSERVER_Error* error);

  TRITONBACKEND_Request* handle_ = nullptr;
  TRITONBACKEND_Response* response_ = nullptr;
  Outcome outcome_;
  std::vector<Input> inputs_;
  std::int64_t num_rows_ = 1;
  std::string sequence_;
  std::uint32_t flags_ = 0;
  bool batched_ = false;
  std::vector<std::int64_t> output_shape_;
};

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_REQUEST_H
