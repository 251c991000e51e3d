#include "tensor_in.h"

#include <cstring>
#include <string>

namespace hardtack::py_binding {
namespace {

constexpr const char* kLegacy = "dltensor";
constexpr const char* kUsedLegacy = "used_dltensor";
constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr uint32_t kMajor = 1;

bool named_dtype(const std::string& name, ht_dtype* out) {
  if (name == "bfloat16") return *out = {4, 16, 1}, true;
  if (name == "float8_e4m3fn") return *out = {10, 8, 1}, true;
  if (name == "float8_e5m2") return *out = {12, 8, 1}, true;
  if (name == "float8_e8m0fnu") return *out = {14, 8, 1}, true;
  return false;
}

// The DLPack type of a numpy dtype; false for one that Hardtack has no type for. numpy has no bfloat16 and no
// float8: where these are declared, uint16 and uint8 hold their bits, and ml_dtypes has types by their names.
bool dtype_of(const py::dtype& dtype, const ht_tensor_info* declared, ht_dtype* out) {
  const char order = dtype.byteorder();
  if (order == '>') return false;
  const auto bits = static_cast<uint8_t>(dtype.itemsize() * 8);
  switch (dtype.kind()) {
    case 'b': *out = {6, bits, 1}; return true;
    case 'i': *out = {0, bits, 1}; return true;
    case 'u': {
      const ht_dtype wanted = declared == nullptr ? ht_dtype{4, 16, 1} : declared->dtype;
      const bool of_bits = wanted.bits == bits && (wanted.code == 4 || (wanted.code >= 10 && wanted.code <= 14));
      *out = {of_bits ? wanted.code : uint8_t{1}, bits, 1};
      return true;
    }
    case 'f':
      if (bits == 8) return named_dtype(py::str(py::handle(dtype)).cast<std::string>(), out);
      *out = {2, bits, 1};
      return bits <= 64;
    case 'c': *out = {5, bits, 1}; return dtype.itemsize() <= 16;
    default: return named_dtype(py::str(py::handle(dtype)).cast<std::string>(), out);
  }
}

bool is_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) ||
         PyComplex_CheckExact(object);
}

// False where the number is too large for the dtype.
bool store_integer(PyObject* number, ht_dtype dtype, char* to) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0) return false;
  const int64_t hi = dtype.code == 1 ? (int64_t{1} << dtype.bits) - 1 : INT64_MAX >> (64 - dtype.bits);
  const int64_t lo = dtype.code == 1 ? 0 : -hi - 1;
  if (dtype.code != 6 && (value < lo || value > hi)) return false;
  std::memcpy(to, &value, dtype.bits / 8U);  // the low bytes come first on all machines that run this
  return true;
}

bool store_float(double value, ht_dtype dtype, char* to) {
  const int failed = dtype.bits == 16   ? PyFloat_Pack2(value, to, 1)
                     : dtype.bits == 32 ? PyFloat_Pack4(value, to, 1)
                                        : PyFloat_Pack8(value, to, 1);
  if (failed != 0) PyErr_Clear();  // OverflowError
  return failed == 0;
}

constexpr const char* kOtherStrides =
    "its strides are not the contract's: pass a contiguous one, which can be written in place";

// A capsule that can say whether its tensor may be written to, where the object knows of such.
py::object versioned_capsule(const py::object& object, py::dict keywords) {
  py::dict asked = keywords.attr("copy")();
  asked["max_version"] = py::make_tuple(kMajor, 0);
  try {
    return object.attr("__dlpack__")(**asked);
  } catch (py::error_already_set& refused) {
    if (!refused.matches(PyExc_TypeError)) throw;
  }
  return object.attr("__dlpack__")(**keywords);
}

// The parts, one after the other.
bool store_complex(PyObject* number, ht_dtype dtype, char* to) {
  const Py_complex value = PyComplex_AsCComplex(number);
  const ht_dtype part = {2, static_cast<uint8_t>(dtype.bits / 2), 1};
  return store_float(value.real, part, to) && store_float(value.imag, part, to + part.bits / 8);
}

}  // namespace

Inputs::Inputs(py::handle leaves, const ht_model* model, size_t entry)
    : model_(model),
      entry_(entry),
      leaves_(py::reinterpret_steal<py::object>(PySequence_Fast(leaves.ptr(), "leaves must be a sequence"))),
      torch_(Torch::imported()) {
  if (!leaves_) throw py::error_already_set();
  tensors_.resize(static_cast<size_t>(PySequence_Fast_GET_SIZE(leaves_.ptr())));
}

Inputs::~Inputs() {
  for (ManagedTensor* m : managed_) {
    if (m->deleter != nullptr) m->deleter(m);
  }
  for (VersionedTensor* v : versioned_) {
    if (v->deleter != nullptr) v->deleter(v);
  }
}

py::handle Inputs::leaf(size_t index) const {
  for (const auto& [at, object] : replaced_) {
    if (at == index) return object;
  }
  return PySequence_Fast_GET_ITEM(leaves_.ptr(), static_cast<Py_ssize_t>(index));
}

void Inputs::read_torch(bool follows) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (torch_ != nullptr && torch_->is_tensor(leaf(i))) {
      any_torch_ = true;
      add_torch(i, follows);
    } else {
      others_.push_back(i);
    }
  }
}

bool Inputs::is_written(size_t index) const {
  const ht_tensor_info* declared = ht_model_input(model_, entry_, index);
  return declared != nullptr && declared->written != 0;
}

// What would be copied cannot be written to in the caller's place.
void Inputs::refuse_copy(size_t index, const char* problem) {
  throw InputProblem{index, std::string("the model writes to it, and ") + problem};
}

void Inputs::check_written_torch(size_t index, bool lies_well) const {
  const py::handle tensor = leaf(index);
  if (tensor.attr("requires_grad").cast<bool>()) refuse_copy(index, "it requires gradients: pass its detach()");
  if (tensor.attr("is_conj")().cast<bool>() || tensor.attr("is_neg")().cast<bool>())
    refuse_copy(index, "it is a lazy conjugate or negative: resolve it first (resolve_conj, resolve_neg)");
  if (!lies_well) refuse_copy(index, kOtherStrides);
}

void Inputs::note_writes() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (is_written(i) && torch_ != nullptr && torch_->is_tensor(leaf(i))) Torch::note_write(leaf(i));
  }
}

void Inputs::read_others(void* stream) {
  for (const size_t i : others_) add_other(i, stream);
}

void Inputs::add_torch(size_t index, bool follows) {
  ht_tensor& tensor = tensors_[index];
  if (!torch_->problem().empty()) throw InputProblem{index, torch_->problem()};
  try {
    tensor = torch_->view(leaf(index));
  } catch (py::error_already_set& refused) {
    const auto said = py::str(refused.value()).cast<std::string>();
    // behind the first line come the frames of torch's C++
    throw InputProblem{index, "torch cannot show its memory: " + said.substr(0, said.find('\n'))};
  }
  const bool on_host = static_cast<int>(tensor.device.device_type) == 1;
  const ht_tensor_info* declared = ht_model_input(model_, entry_, index);
  const bool lies_well = declared == nullptr || conforms(tensor, *declared);
  if (is_written(index)) check_written_torch(index, lies_well);
  if (!lies_well || Torch::may_be_lazy(tensor)) {
    py::object plain = Torch::plain(leaf(index));
    if (!lies_well && !on_host) plain = Torch::dense(plain, is_channels_last(*declared));
    tensor = torch_->view(plain);
    replaced_.emplace_back(index, std::move(plain));
  }
  if (on_host) return conform_on_host(index);
  if (follows)
    torch_on_device_ = index;
  else
    others_.push_back(index);
}

void Inputs::add_other(size_t index, void* stream) {
  const py::handle object = leaf(index);
  if (py::isinstance<py::array>(object)) {
    add_array(index);
  } else if (is_number(object.ptr())) {
    return add_number(index);
  } else if (PyCapsule_CheckExact(object.ptr())) {
    add_capsule(object, index);
  } else {
    add_dlpack(index, stream);
  }
  if (static_cast<int>(tensors_[index].device.device_type) == 1) conform_on_host(index);
}

void Inputs::conform_on_host(size_t index) {
  const ht_tensor_info* declared = ht_model_input(model_, entry_, index);
  // One input too many: the runtime refuses the call.
  if (declared == nullptr || conforms(tensors_[index], *declared)) return;
  if (is_written(index)) refuse_copy(index, kOtherStrides);
  copies_.push_back(std::make_unique<Copy>());
  py_binding::conform(&tensors_[index], *declared, copies_.back().get());
}

void Inputs::add_array(size_t index) {
  const auto array = py::reinterpret_borrow<py::array>(leaf(index));
  ht_tensor tensor{};
  if (is_written(index) && !array.writeable()) refuse_copy(index, "it is a read-only array");
  if (!dtype_of(array.dtype(), ht_model_input(model_, entry_, index), &tensor.dtype)) {
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
  tensors_[index] = tensor;
}

void Inputs::add_capsule(py::handle capsule, size_t index) {
  if (PyCapsule_IsValid(capsule.ptr(), kLegacy) != 0) {
    auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kLegacy));
    managed_.reserve(managed_.size() + 1);
    if (PyCapsule_SetName(capsule.ptr(), kUsedLegacy) != 0) throw py::error_already_set();
    managed_.push_back(managed);
    tensors_[index] = managed->tensor;
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
  constexpr uint64_t kReadOnly = 1, kCopied = 2;
  if (is_written(index) && (versioned->flags & kReadOnly) != 0) refuse_copy(index, "its DLPack tensor is read-only");
  if (is_written(index) && (versioned->flags & kCopied) != 0) refuse_copy(index, "its DLPack tensor is a copy");
  tensors_[index] = versioned->tensor;
}

// A Python number as an input of rank 0, if it can be one without rounding other than a float's.
void Inputs::add_number(size_t index) {
  PyObject* number = leaf(index).ptr();
  const ht_tensor_info* declared = ht_model_input(model_, entry_, index);
  const auto refuse = [&](const char* verb, bool with_type) {
    const std::string type = with_type ? "the Python " + std::string(Py_TYPE(number)->tp_name) + " " : "";
    throw InputProblem{index, verb + type + py::repr(number).cast<std::string>(), true};
  };
  if (declared == nullptr) return;  // one too many: the runtime refuses the call
  if (is_written(index)) refuse_copy(index, "it is a number of Python: pass an array");
  const ht_dtype dtype = declared->dtype;
  const bool fits = PyBool_Check(number)           ? dtype.code == 6
                    : PyLong_CheckExact(number)    ? dtype.code <= 1
                    : PyComplex_CheckExact(number) ? dtype.code == 5
                                                   : dtype.code == 2;
  if (declared->ndim != 0 || !fits) refuse("cannot be ", true);
  numbers_.push_back(std::make_unique<std::array<int64_t, 2>>());
  char* bytes = reinterpret_cast<char*>(numbers_.back()->data());
  const bool stored = PyFloat_CheckExact(number)     ? store_float(PyFloat_AS_DOUBLE(number), dtype, bytes)
                      : PyComplex_CheckExact(number) ? store_complex(number, dtype, bytes)
                                                     : store_integer(number, dtype, bytes);
  if (!stored) refuse("cannot hold ", false);
  ht_tensor& tensor = tensors_[index];
  tensor = {};
  tensor.data = bytes;
  tensor.device.device_type = 1;
  tensor.dtype = dtype;
}

void Inputs::add_dlpack(size_t index, void* stream) {
  py::object object = py::reinterpret_borrow<py::object>(leaf(index));
  // It is to be ready on another stream than torch's. A tensor with gradients would refuse __dlpack__.
  if (torch_ != nullptr && torch_->is_tensor(object)) object = Torch::plain(object);
  const py::module_ numpy = py::module_::import("numpy");
  if (py::isinstance(object, numpy.attr("generic"))) {  // numpy's scalars have no __dlpack__
    if (is_written(index)) refuse_copy(index, "it is a scalar of numpy: pass an array");
    replaced_.emplace_back(index, numpy.attr("asarray")(object));
    return add_array(index);
  }
  if (!py::hasattr(object, "__dlpack__")) {
    const std::string type = py::str(py::type::of(object).attr("__name__")).cast<std::string>();
    throw InputProblem{index, "is a " + type + ", not a tensor: pass a numpy array or an object with __dlpack__"};
  }
  const bool on_cuda = stream != nullptr && py::hasattr(object, "__dlpack_device__") &&
                       object.attr("__dlpack_device__")().cast<py::tuple>()[0].cast<int>() == 2;
  py::dict keywords;
  if (on_cuda) keywords["stream"] = reinterpret_cast<uintptr_t>(stream);
  py::object capsule = is_written(index) ? versioned_capsule(object, keywords) : object.attr("__dlpack__")(**keywords);
  if (!PyCapsule_CheckExact(capsule.ptr())) throw InputProblem{index, "its __dlpack__ gave no capsule"};
  held_.push_back(capsule);
  add_capsule(capsule, index);
}

}  // namespace hardtack::py_binding
