// Fresh memory for the outputs of one call, given to Python as numpy arrays or DLPack capsules.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace hardtack::py_binding {

namespace py = pybind11;

enum class OutputKind { kNumpy, kDlpack };

class Outputs {
 public:
  explicit Outputs(size_t count) : tensors_(count) {}
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  ht_tensor* data() { return tensors_.data(); }
  size_t size() const { return tensors_.size(); }

  // Gives every tensor memory for the dtype, shape and strides that ht_session_bind filled in. Throws std::bad_alloc.
  void allocate();
  // The tensors as Python objects that own their memory.
  py::tuple release(OutputKind kind);

 private:
  std::vector<ht_tensor> tensors_;
};

// A numpy array with a copy of the tensor's elements.
py::array copy_to_numpy(const ht_tensor& tensor);

}  // namespace hardtack::py_binding
