// Tensors of torch, read through DLPack's C exchange API, which torch offers since 2.10: no Python call, no capsule. This
// module neither links nor imports torch; it finds the one that the caller has imported.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hardtack::py_binding {

namespace py = pybind11;

struct Exchange;  // DLPack's table of functions

class Torch {
 public:
  // The torch of this process, or null as long as nobody has imported it.
  static const Torch* imported();
  // Why its tensors cannot be read; "" if they can.
  const std::string& problem() const { return problem_; }

  bool is_tensor(py::handle object) const { return PyObject_TypeCheck(object.ptr(), tensor_type_) != 0; }
  // What a tensor is, without owning it; it holds while the tensor lives. Throws what torch raises for tensors without
  // strides, and what it has no DLPack type for.
  ht_tensor view(py::handle tensor) const;
  // Whether a view may hold other numbers than its tensor's elements: the conjugates of complex ones, and the negatives of
  // real ones, as that of a conjugate's imaginary part does, which without gaps is only where it is too small for gaps.
  static bool may_be_lazy(const ht_tensor& view);
  // The tensor with the values that its elements stand for, which lazy negation keeps apart from its memory, and with
  // no history of gradients.
  static py::object plain(py::handle tensor);
  // Has autograd know that the tensor's elements are others now.
  static void note_write(py::handle tensor);
  // The tensor laid out row-major, or with dimension 1 innermost.
  static py::object dense(py::handle tensor, bool channels_last);
  // The stream that torch works on now, as a number; 1 is CUDA's for its default stream.
  uintptr_t current_stream(const ht_device& device) const;
  // A new tensor of the form's shape, strides, dtype and device.
  py::object empty(const ht_tensor& form) const;
  // A tensor over the memory of an object with __dlpack__.
  py::object from_dlpack(const py::object& object) const { return module_.attr("from_dlpack")(object); }

 private:
  explicit Torch(const py::handle& module);
  const py::object& device(const ht_device& device) const;
  const py::object& dtype(ht_dtype dtype) const;

  PyTypeObject* tensor_type_;
  const Exchange* exchange_;
  std::string problem_;
  py::object empty_strided_, keywords_, module_;
  mutable std::vector<py::object> devices_;  // the CPU, then CUDA's by number
  mutable std::vector<py::object> dtypes_;   // by DLPack's code and width
};

}  // namespace hardtack::py_binding
