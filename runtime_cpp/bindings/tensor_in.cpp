#include "tensor_in.h"

#include <string>

namespace hardtack::py_binding {
namespace {

constexpr const char* kLegacy = "dltensor";
constexpr const char* kUsedLegacy = "used_dltensor";
constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr uint32_t kMajor = 1;

// The DLPack type of a numpy dtype; false for one that Hardtack has no type for. numpy has no bfloat16: uint16 holds its
// bits, and ml_dtypes' bfloat16 is a void type of 2 bytes by that name.
bool dtype_of(const py::dtype& dtype, ht_dtype* out) {
  const char order = dtype.byteorder();
  if (order == '>') return false;
  const auto bits = static_cast<uint8_t>(dtype.itemsize() * 8);
  switch (dtype.kind()) {
    case 'b': *out = {6, bits, 1}; return true;
    case 'i': *out = {0, bits, 1}; return true;
    case 'u': *out = {static_cast<uint8_t>(bits == 16 ? 4 : 1), bits, 1}; return true;
    case 'f': *out = {2, bits, 1}; return bits <= 64;
    default:
      *out = {4, 16, 1};
      return dtype.itemsize() == 2 && py::str(py::handle(dtype)).cast<std::string>() == "bfloat16";
  }
}

}  // namespace

Inputs::Inputs(py::handle leaves, void* stream) : stream_(stream) {
  const py::object fast = py::reinterpret_steal<py::object>(PySequence_Fast(leaves.ptr(), "leaves must be a sequence"));
  if (!fast) throw py::error_already_set();
  const size_t count = static_cast<size_t>(PySequence_Fast_GET_SIZE(fast.ptr()));
  tensors_.reserve(count);
  try {
    for (size_t i = 0; i < count; ++i) {
      const py::handle leaf = PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(i));
      if (py::isinstance<py::array>(leaf)) {
        add_array(leaf, i);
      } else if (PyCapsule_CheckExact(leaf.ptr())) {
        add_capsule(leaf, i);
      } else {
        add_dlpack(leaf, i);
      }
    }
  } catch (...) {
    give_back();  // a constructor that throws runs no destructor
    throw;
  }
}

void Inputs::conform(const ht_model* model, size_t entry) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ht_tensor_info* declared = ht_model_input(model, entry, i);
    if (declared == nullptr) return;  // one too many: the runtime refuses the call
    auto copy = std::make_unique<Copy>();
    if (py_binding::conform(&tensors_[i], *declared, copy.get())) copies_.push_back(std::move(copy));
  }
}

Inputs::~Inputs() { give_back(); }

void Inputs::give_back() {
  for (ManagedTensor* m : managed_) {
    if (m->deleter != nullptr) m->deleter(m);
  }
  for (VersionedTensor* v : versioned_) {
    if (v->deleter != nullptr) v->deleter(v);
  }
  managed_.clear();
  versioned_.clear();
}

void Inputs::add_array(py::handle object, size_t index) {
  const auto array = py::reinterpret_borrow<py::array>(object);
  ht_tensor tensor{};
  if (!dtype_of(array.dtype(), &tensor.dtype)) {
    throw InputProblem{index,
                       "numpy dtype " + py::str(array.dtype()).cast<std::string>() + " is not one that models take"};
  }
  static_assert(sizeof(py::ssize_t) == sizeof(int64_t), "numpy's shapes are used in place");
  tensor.data = const_cast<void*>(array.data());
  tensor.device.device_type = 1;
  tensor.ndim = static_cast<int32_t>(array.ndim());
  tensor.shape = reinterpret_cast<int64_t*>(const_cast<py::ssize_t*>(array.shape()));
  if ((array.flags() & py::array::c_style) == 0) {
    auto strides = std::make_unique<int64_t[]>(static_cast<size_t>(array.ndim()));
    const auto itemsize = static_cast<int64_t>(array.itemsize());
    for (py::ssize_t d = 0; d < array.ndim(); ++d) {
      if (array.strides(d) % itemsize != 0) {
        throw InputProblem{index, "its stride of " + std::to_string(array.strides(d)) + " bytes in dimension " +
                                      std::to_string(d) + " is not a multiple of its itemsize, " +
                                      std::to_string(itemsize)};
      }
      strides[static_cast<size_t>(d)] = array.strides(d) / itemsize;
    }
    tensor.strides = strides.get();
    strides_.push_back(std::move(strides));
  }
  tensors_.push_back(tensor);
}

void Inputs::add_capsule(py::handle capsule, size_t index) {
  if (PyCapsule_IsValid(capsule.ptr(), kLegacy) != 0) {
    auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kLegacy));
    managed_.reserve(managed_.size() + 1);
    if (PyCapsule_SetName(capsule.ptr(), kUsedLegacy) != 0) throw py::error_already_set();
    managed_.push_back(managed);
    tensors_.push_back(managed->tensor);
    return;
  }
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) == 0) {
    throw InputProblem{index, "the capsule is not an unused DLPack tensor"};
  }
  auto* versioned = static_cast<VersionedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
  if (versioned->major != kMajor) {
    throw InputProblem{index,
                       "it gives DLPack version " + std::to_string(versioned->major) + "; version 1 is understood"};
  }
  versioned_.reserve(versioned_.size() + 1);
  if (PyCapsule_SetName(capsule.ptr(), kUsedVersioned) != 0) throw py::error_already_set();
  versioned_.push_back(versioned);
  tensors_.push_back(versioned->tensor);
}

void Inputs::add_dlpack(py::handle object, size_t index) {
  if (!py::hasattr(object, "__dlpack__")) {
    const std::string type = py::str(py::type::of(object).attr("__name__")).cast<std::string>();
    throw InputProblem{index, "is a " + type + ", not a tensor: pass a numpy array or an object with __dlpack__"};
  }
  const bool on_cuda = stream_ != nullptr && py::hasattr(object, "__dlpack_device__") &&
                       object.attr("__dlpack_device__")().cast<py::tuple>()[0].cast<int>() == 2;
  py::object capsule = on_cuda ? object.attr("__dlpack__")(py::arg("stream") = reinterpret_cast<uintptr_t>(stream_))
                               : object.attr("__dlpack__")();
  if (!PyCapsule_CheckExact(capsule.ptr())) throw InputProblem{index, "its __dlpack__ gave no capsule"};
  held_.push_back(capsule);
  add_capsule(capsule, index);
}

}  // namespace hardtack::py_binding
