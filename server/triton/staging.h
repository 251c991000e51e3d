// The inputs of one run, made of the inputs of one or more requests.
#ifndef HARDTACK_TRITON_STAGING_H
#define HARDTACK_TRITON_STAGING_H

#include <memory>

#include "request.h"

namespace hardtack::triton {

/// Keeps its buffers between runs.
class Staging {
 public:
  /// Joins the requests along the batch dimension; one request alone is used where it lies, if it can be.
  Outcome join(const LoadedModel& model, const std::vector<Request*>& group);

  const std::vector<ht_tensor>& inputs() const { return tensors_; }
  std::int64_t num_rows() const { return num_rows_; }
  /// Of all inputs.
  std::size_t nbytes() const { return nbytes_; }

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  struct Buffer {
    std::unique_ptr<char, Free> memory;
    std::size_t nbytes = 0;

    /// Null if there is no memory for that.
    char* reserve(std::size_t wanted);
  };

  Outcome copy(const LoadedModel& model, const std::vector<Request*>& group, std::size_t input);

  std::vector<Buffer> buffers_;
  Buffer permuted_;  // one request's input before its dimensions change order
  std::vector<ht_tensor> tensors_;
  std::vector<std::vector<std::int64_t>> shapes_, strides_;
  std::int64_t num_rows_ = 0;
  std::size_t nbytes_ = 0;
};

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_STAGING_H
