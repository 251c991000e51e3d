// Python objects as ht_tensor: numpy arrays by their buffer, anything else by DLPack. Nothing is copied.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "conform.h"

namespace hardtack::py_binding {

namespace py = pybind11;

// DLPack's managed tensors, as far as a consumer and a producer need them.
struct ManagedTensor {
  ht_tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

struct VersionedTensor {
  uint32_t major, minor;
  void* context;
  void (*deleter)(VersionedTensor* self);
  uint64_t flags;
  ht_tensor tensor;
};

// The inputs of one call, with all that their ht_tensors point into.
class Inputs {
 public:
  // Throws py::error_already_set, or InputProblem for an object that is no tensor.
  // `stream`: where tensors on a device must be ready; null: there is none.
  Inputs(py::handle leaves, void* stream);
  ~Inputs();
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  // Copies the inputs whose strides are not the entry's (conform.h).
  void conform(const ht_model* model, size_t entry);

  const ht_tensor* data() const { return tensors_.data(); }
  size_t size() const { return tensors_.size(); }

 private:
  void add_array(py::handle array, size_t index);
  void add_capsule(py::handle capsule, size_t index);
  void add_dlpack(py::handle object, size_t index);
  void give_back();

  void* stream_;
  std::vector<ht_tensor> tensors_;
  std::vector<std::unique_ptr<int64_t[]>> strides_;  // of the arrays that are not contiguous
  std::vector<py::object> held_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<ManagedTensor*> managed_;
  std::vector<VersionedTensor*> versioned_;
};

// An argument that cannot be an input whatever the entry wants; the message has no input's name.
struct InputProblem {
  size_t index;
  std::string message;
};

}  // namespace hardtack::py_binding
