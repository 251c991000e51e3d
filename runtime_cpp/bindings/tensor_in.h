// Python objects as ht_tensor: numpy arrays by their buffer, tensors of torch by a view, Python numbers by a copy,
// anything else by DLPack. Tensors are copied only where their strides are not the contract's.
#pragma once

#include <hardtack/hardtack.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conform.h"
#include "torch_tensors.h"

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

// An argument that cannot be an input; the message has no input's name.
struct InputProblem {
  size_t index;
  std::string message;
  bool needs_contract = false;  // whether the message is about the input's dtype and shape, which are told before it
};

// The inputs of one call, with all that their ht_tensors point into. The leaves must live as long.
class Inputs {
 public:
  Inputs(py::handle leaves, const ht_model* model, size_t entry);
  ~Inputs();
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  // First the tensors of torch; of those on a device only where the session `follows` torch's stream. Then all others;
  // `stream`: where tensors on a device must be ready, null where there is none. Both throw py::error_already_set, or
  // InputProblem for an object that is no tensor.
  void read_torch(bool follows);
  void read_others(void* stream);

  // Behind a run: torch learns which of its tensors were written to.
  void note_writes() const;

  // Null where no leaf is a tensor of torch.
  const Torch* torch() const { return any_torch_ ? torch_ : nullptr; }
  // A tensor that read_torch found on a device; null where there is none.
  const ht_tensor* torch_on_device() const { return torch_on_device_ == kNone ? nullptr : &tensors_[torch_on_device_]; }
  const ht_tensor* data() const { return tensors_.data(); }
  size_t size() const { return tensors_.size(); }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  py::handle leaf(size_t index) const;
  void add_torch(size_t index, bool follows);
  void add_other(size_t index, void* stream);
  void add_array(size_t index);
  void add_capsule(py::handle capsule, size_t index);
  void add_dlpack(size_t index, void* stream);
  void add_number(size_t index);
  void conform_on_host(size_t index);
  bool is_written(size_t index) const;
  [[noreturn]] static void refuse_copy(size_t index, const char* problem);
  void check_written_torch(size_t index, bool lies_well) const;

  const ht_model* model_;
  size_t entry_;
  py::object leaves_;
  const Torch* torch_;
  bool any_torch_ = false;
  size_t torch_on_device_ = kNone;
  std::vector<ht_tensor> tensors_;
  std::vector<size_t> others_;                           // leaves that read_torch left
  std::vector<std::pair<size_t, py::object>> replaced_;  // leaves that had to be laid out anew
  std::vector<std::unique_ptr<int64_t[]>> strides_;      // of the arrays that are not contiguous
  std::vector<std::unique_ptr<std::array<int64_t, 2>>> numbers_;
  std::vector<py::object> held_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<ManagedTensor*> managed_;
  std::vector<VersionedTensor*> versioned_;
};

}  // namespace hardtack::py_binding
