// Memory for the outputs of one call, given to Python as numpy arrays, tensors of torch or DeviceTensors.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "host_blocks.h"
#include "torch_tensors.h"

namespace hardtack::py_binding {

namespace py = pybind11;

// An output on a device that nobody else has allocated. Other libraries take it by DLPack; it copies nothing itself.
class DeviceTensor {
 public:
  DeviceTensor(const ht_tensor& tensor, std::shared_ptr<void> memory);
  py::tuple shape() const;
  const char* dtype() const { return ht_dtype_name(tensor_.dtype); }
  py::tuple dlpack_device() const;
  py::object dlpack() const;
  // Whether it is what `form` describes, with its memory.
  bool is_like(const ht_tensor& form) const;
  void* data() const { return tensor_.data; }

 private:
  ht_tensor tensor_;
  std::vector<int64_t> dims_;  // shape, then strides
  std::shared_ptr<void> memory_;
};

class Outputs {
 public:
  Outputs(size_t count, std::shared_ptr<ht_model> model, std::shared_ptr<HostBlocks> blocks)
      : tensors_(count), made_(count), left_(count), model_(std::move(model)), blocks_(std::move(blocks)) {}
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  ht_tensor* data() { return tensors_.data(); }
  size_t size() const { return tensors_.size(); }

  // Gives every tensor memory for the device, dtype, shape and strides that ht_session_bind filled in. `torch`: makes
  // tensors of its own; null: there are none among the inputs. `stream_ordered`: it may make those on a device, too, as the
  // session works on its stream. Those whose sizes the run has yet to read are left to the session. Throws std::bad_alloc.
  void allocate(const Torch* torch, bool stream_ordered);
  // After the run: copies of what was left to the session. Throws std::bad_alloc, and py::value_error for one on a device
  // without torch.
  void copy_found(const Torch* torch);
  // Takes the memory of earlier DeviceTensors. Throws py::value_error unless they have the same shapes.
  void reuse(const py::sequence& earlier);
  // The tensors as Python objects that own their memory.
  py::tuple release();

 private:
  void allocate_on_device(size_t i);

  std::vector<ht_tensor> tensors_;
  std::vector<py::object> made_;  // all but numpy arrays
  std::vector<bool> left_;        // to the session
  std::shared_ptr<ht_model> model_;
  std::shared_ptr<HostBlocks> blocks_;
};

// A numpy array with a copy of the tensor's elements.
py::array copy_to_numpy(const ht_tensor& tensor);

}  // namespace hardtack::py_binding
