#include "tensor_out.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "session.h"
#include "tensor_in.h"

namespace hardtack::py_binding {
namespace {

// A tensor's memory with its own copy of shape and strides, for DLPack.
struct Owner {
  ManagedTensor managed;
  std::vector<int64_t> dims;
  std::shared_ptr<void> memory;
};

// An output's memory while Python has it.
class Block {
 public:
  Block(std::shared_ptr<HostBlocks> home, size_t nbytes, void* memory)
      : home_(std::move(home)), nbytes_(nbytes), memory_(memory) {}
  ~Block() { home_->give(memory_, nbytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  std::shared_ptr<HostBlocks> home_;
  size_t nbytes_;
  void* memory_;
};

bool is_host(const ht_tensor& t) { return t.device.device_type == 1; }

size_t nbytes_of(const ht_tensor& t) {
  int64_t last = 0;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return 0;
    last += (t.shape[d] - 1) * t.strides[d];
  }
  return static_cast<size_t>(last + 1) * (t.dtype.bits / 8);
}

// Whether ht_session_bind knew all sizes.
bool is_sized(const ht_tensor& t) {
  return std::all_of(t.shape, t.shape + t.ndim, [](int64_t size) { return size >= 0; });
}

py::dtype numpy_dtype(ht_dtype dtype) {
  switch (dtype.code) {
    case 0: return py::dtype(dtype.bits == 8 ? "i1" : dtype.bits == 16 ? "i2" : dtype.bits == 32 ? "i4" : "i8");
    case 2: return py::dtype(dtype.bits == 16 ? "f2" : dtype.bits == 32 ? "f4" : "f8");
    case 4: return py::dtype("u2");
    case 5: return py::dtype(dtype.bits == 64 ? "c8" : "c16");
    case 6: return py::dtype("?");
    default: return py::dtype(dtype.bits == 8 ? "u1" : dtype.bits == 16 ? "u2" : "u4");
  }
}

// Looked up once: parsing a dtype's text costs more than the rest of making an array.
const py::dtype& cached_dtype(ht_dtype dtype) {
  static std::vector<py::dtype>* cache = [] {
    auto* made = new std::vector<py::dtype>();  // lives as long as the interpreter
    for (uint8_t code = 0; code < 16; ++code) {
      for (const uint8_t bits : {8, 16, 32, 64, 128}) made->push_back(numpy_dtype({code, bits, 1}));
    }
    return made;
  }();
  size_t width = 0;
  while (8u << width < dtype.bits) ++width;
  return (*cache)[(dtype.code & 15u) * 5 + width];
}

py::array numpy_array(const ht_tensor& t, const py::object& base) {
  const auto itemsize = static_cast<py::ssize_t>(t.dtype.bits / 8);
  std::vector<py::ssize_t> shape(t.shape, t.shape + t.ndim), strides(static_cast<size_t>(t.ndim));
  for (int32_t d = 0; d < t.ndim; ++d)
    strides[static_cast<size_t>(d)] = static_cast<py::ssize_t>(t.strides[d]) * itemsize;
  return base ? py::array(cached_dtype(t.dtype), std::move(shape), std::move(strides), t.data, base)
              : py::array(cached_dtype(t.dtype), std::move(shape), std::move(strides), t.data);
}

py::object dlpack_capsule(const ht_tensor& t, std::shared_ptr<void> memory) {
  auto owner = std::make_unique<Owner>();
  owner->memory = std::move(memory);
  owner->dims.assign(t.shape, t.shape + t.ndim);
  owner->dims.insert(owner->dims.end(), t.strides, t.strides + t.ndim);
  owner->managed.tensor = t;
  owner->managed.tensor.shape = owner->dims.data();
  owner->managed.tensor.strides = owner->dims.data() + t.ndim;
  owner->managed.context = owner.get();
  owner->managed.deleter = [](ManagedTensor* self) { delete static_cast<Owner*>(self->context); };
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

DeviceTensor::DeviceTensor(const ht_tensor& tensor, std::shared_ptr<void> memory)
    : tensor_(tensor), dims_(tensor.shape, tensor.shape + tensor.ndim), memory_(std::move(memory)) {
  dims_.insert(dims_.end(), tensor.strides, tensor.strides + tensor.ndim);
}

py::tuple DeviceTensor::shape() const {
  py::tuple out(tensor_.ndim);
  for (int32_t d = 0; d < tensor_.ndim; ++d) out[static_cast<size_t>(d)] = dims_[static_cast<size_t>(d)];
  return out;
}

py::tuple DeviceTensor::dlpack_device() const {
  return py::make_tuple(static_cast<int>(tensor_.device.device_type), tensor_.device.device_id);
}

py::object DeviceTensor::dlpack() const {
  ht_tensor t = tensor_;
  t.shape = const_cast<int64_t*>(dims_.data());
  t.strides = t.shape + t.ndim;
  return dlpack_capsule(t, memory_);
}

bool DeviceTensor::is_like(const ht_tensor& form) const {
  const bool same_kind = form.ndim == tensor_.ndim && form.dtype.code == tensor_.dtype.code &&
                         form.dtype.bits == tensor_.dtype.bits && form.device.device_id == tensor_.device.device_id;
  return same_kind && !is_host(form) && std::equal(form.shape, form.shape + form.ndim, dims_.begin()) &&
         std::equal(form.strides, form.strides + form.ndim, dims_.begin() + form.ndim);
}

Outputs::~Outputs() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!made_[i] && !left_[i] && tensors_[i].data != nullptr) blocks_->give(tensors_[i].data, nbytes_of(tensors_[i]));
  }
}

void Outputs::allocate(const Torch* torch, bool stream_ordered) {
  blocks_->begin_run();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    ht_tensor& t = tensors_[i];
    t.byte_offset = 0;
    left_[i] = !is_sized(t);
    if (left_[i]) continue;
    if (torch != nullptr && (stream_ordered || is_host(t))) {
      made_[i] = torch->empty(t);
      t.data = torch->view(made_[i]).data;
    } else if (is_host(t)) {
      t.data = blocks_->take(nbytes_of(t));
    } else {
      allocate_on_device(i);
      if (torch != nullptr) made_[i] = torch->from_dlpack(made_[i]);
    }
  }
}

void Outputs::copy_found(const Torch* torch) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!left_[i]) continue;
    ht_tensor& t = tensors_[i];
    if (is_host(t)) {
      const size_t nbytes = nbytes_of(t);
      ht_tensor copy = t;
      if (torch != nullptr) {
        made_[i] = torch->empty(t);
        copy.data = torch->view(made_[i]).data;
      } else {
        copy.data = blocks_->take(nbytes);
      }
      if (nbytes > 0) std::memcpy(copy.data, t.data, nbytes);
      t.data = copy.data;
    } else if (torch != nullptr) {
      const py::object view = torch->from_dlpack(py::cast(DeviceTensor(t, nullptr)));
      made_[i] = view.attr("clone")();  // on the stream that the session works on
    } else {
      throw py::value_error(
          "output " + std::to_string(i) +
          " has a size that is known only during the run: give tensors of torch, or set outputs=\"host\"");
    }
    left_[i] = false;
  }
}

void Outputs::reuse(const py::sequence& earlier) {
  if (earlier.size() != tensors_.size()) throw py::value_error("there must be one DeviceTensor for each output");
  for (size_t i = 0; i < tensors_.size(); ++i) {
    py::object tensor = earlier[i];
    const auto& device = tensor.cast<const DeviceTensor&>();
    if (!is_sized(tensors_[i]))
      throw py::value_error("output " + std::to_string(i) + " has a size that is known only during the run");
    if (!device.is_like(tensors_[i])) throw py::value_error("output " + std::to_string(i) + " has another form now");
    tensors_[i].data = device.data();
    tensors_[i].byte_offset = 0;
    made_[i] = std::move(tensor);
  }
}

void Outputs::allocate_on_device(size_t i) {
  ht_tensor& t = tensors_[i];
  void* memory = nullptr;
  check(ht_model_allocate(model_.get(), nbytes_of(t), &memory));
  const std::shared_ptr<ht_model> model = model_;
  std::shared_ptr<void> owner(memory, [model](void* m) { ht_model_deallocate(model.get(), m); });
  ht_tensor made = t;
  made.data = memory;
  made_[i] = py::cast(DeviceTensor(made, std::move(owner)));
  t.data = memory;  // last: what is not made is taken for memory of the host
}

py::tuple Outputs::release() {
  py::tuple result(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (made_[i]) {
      result[i] = std::move(made_[i]);
      tensors_[i].data = nullptr;
      continue;
    }
    const ht_tensor view = tensors_[i];
    auto block = std::make_unique<Block>(blocks_, nbytes_of(view), view.data);
    tensors_[i].data = nullptr;
    const py::capsule base(block.get(), [](void* b) { delete static_cast<Block*>(b); });
    static_cast<void>(block.release());
    result[i] = numpy_array(view, base);
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
