#include "tensor_out.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "tensor_in.h"

namespace hardtack::py_binding {
namespace {

constexpr size_t kAlignment = 64;  // what kernels like best, and what torch gives

// A tensor's memory with its own copy of shape and strides, for DLPack.
struct Owner {
  ManagedTensor managed;
  std::vector<int64_t> dims;
};

size_t nbytes_of(const ht_tensor& t) {
  int64_t last = 0;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return 0;
    last += (t.shape[d] - 1) * t.strides[d];
  }
  return static_cast<size_t>(last + 1) * (t.dtype.bits / 8);
}

py::dtype numpy_dtype(ht_dtype dtype) {
  switch (dtype.code) {
    case 0: return py::dtype(dtype.bits == 8 ? "i1" : dtype.bits == 16 ? "i2" : dtype.bits == 32 ? "i4" : "i8");
    case 2: return py::dtype(dtype.bits == 16 ? "f2" : dtype.bits == 32 ? "f4" : "f8");
    case 4: return py::dtype("u2");
    case 6: return py::dtype("?");
    default: return py::dtype("u1");
  }
}

// Looked up once: parsing a dtype's text costs more than the rest of making an array.
const py::dtype& cached_dtype(ht_dtype dtype) {
  static std::vector<py::dtype>* cache = [] {
    auto* made = new std::vector<py::dtype>();  // lives as long as the interpreter
    for (uint8_t code = 0; code < 8; ++code) {
      for (const uint8_t bits : {8, 16, 32, 64}) made->push_back(numpy_dtype({code, bits, 1}));
    }
    return made;
  }();
  const size_t width = dtype.bits == 8 ? 0 : dtype.bits == 16 ? 1 : dtype.bits == 32 ? 2 : 3;
  return (*cache)[(dtype.code & 7u) * 4 + width];
}

py::array numpy_array(const ht_tensor& t, const py::object& base) {
  const auto itemsize = static_cast<py::ssize_t>(t.dtype.bits / 8);
  std::vector<py::ssize_t> shape(t.shape, t.shape + t.ndim), strides(static_cast<size_t>(t.ndim));
  for (int32_t d = 0; d < t.ndim; ++d)
    strides[static_cast<size_t>(d)] = static_cast<py::ssize_t>(t.strides[d]) * itemsize;
  return base ? py::array(cached_dtype(t.dtype), std::move(shape), std::move(strides), t.data, base)
              : py::array(cached_dtype(t.dtype), std::move(shape), std::move(strides), t.data);
}

py::object dlpack_capsule(const ht_tensor& t) {
  auto owner = std::make_unique<Owner>();
  owner->dims.assign(t.shape, t.shape + t.ndim);
  owner->dims.insert(owner->dims.end(), t.strides, t.strides + t.ndim);
  owner->managed.tensor = t;
  owner->managed.tensor.shape = owner->dims.data();
  owner->managed.tensor.strides = owner->dims.data() + t.ndim;
  owner->managed.context = owner.get();
  owner->managed.deleter = [](ManagedTensor* self) {
    std::free(self->tensor.data);
    delete static_cast<Owner*>(self->context);
  };
  PyObject* capsule = PyCapsule_New(&owner->managed, "dltensor", [](PyObject* unused) {
    // a capsule that was consumed has another name, and its consumer calls the deleter
    if (PyCapsule_IsValid(unused, "dltensor") == 0) return;
    auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(unused, "dltensor"));
    managed->deleter(managed);
  });
  if (capsule == nullptr) throw py::error_already_set();
  owner.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

Outputs::~Outputs() {
  for (const ht_tensor& t : tensors_) std::free(t.data);
}

void Outputs::allocate() {
  for (ht_tensor& t : tensors_) {
    const size_t nbytes = std::max<size_t>(nbytes_of(t), 1);
    t.data = std::aligned_alloc(kAlignment, (nbytes + kAlignment - 1) / kAlignment * kAlignment);
    if (t.data == nullptr) throw std::bad_alloc();
    t.device.device_type = 1;
    t.byte_offset = 0;
  }
}

py::tuple Outputs::release(OutputKind kind) {
  py::tuple result(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    ht_tensor& t = tensors_[i];
    py::object made;
    if (kind == OutputKind::kDlpack) {
      made = dlpack_capsule(t);
      t.data = nullptr;
    } else {
      const py::capsule base(t.data, [](void* memory) { std::free(memory); });
      const ht_tensor view = t;
      t.data = nullptr;
      made = numpy_array(view, base);
    }
    result[i] = std::move(made);
  }
  return result;
}

py::array copy_to_numpy(const ht_tensor& tensor) {
  ht_tensor t = tensor;
  t.data = static_cast<char*>(t.data) + t.byte_offset;
  std::vector<int64_t> dense(static_cast<size_t>(t.ndim));
  if (t.strides == nullptr) {
    int64_t step = 1;
    for (int32_t d = t.ndim; d-- > 0;) {
      dense[static_cast<size_t>(d)] = step;
      step *= t.shape[d];
    }
    t.strides = dense.data();
  }
  return numpy_array(t, py::object());  // without a base, numpy copies
}

}  // namespace hardtack::py_binding
