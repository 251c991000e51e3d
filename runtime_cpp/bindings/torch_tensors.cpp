#include "torch_tensors.h"

#include <string>

#include "tensor_in.h"

namespace hardtack::py_binding {

// DLPackExchangeAPI of DLPack 1.2 and later; a newer minor version only appends.
struct Exchange {
  uint32_t major, minor;
  const Exchange* older;
  int (*allocate)(ht_tensor* form, VersionedTensor** out, void* context, void (*fail)(void*, const char*, const char*));
  int (*own)(void* object, VersionedTensor** out);
  int (*give)(VersionedTensor* tensor, void** object);
  int (*view)(void* object, ht_tensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

namespace {

constexpr uint32_t kMajor = 1;
constexpr uintptr_t kDefaultStream = 1;
constexpr int kCuda = 2;
constexpr uint8_t kComplex = 5;

const Exchange* find_exchange(const py::handle& tensor_type) {
  if (!py::hasattr(tensor_type, "__dlpack_c_exchange_api__")) return nullptr;
  const py::object capsule = tensor_type.attr("__dlpack_c_exchange_api__");
  const void* found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (found == nullptr) throw py::error_already_set();
  const Exchange* exchange = static_cast<const Exchange*>(found);
  while (exchange != nullptr && exchange->major != kMajor) exchange = exchange->older;
  return exchange == nullptr || exchange->view == nullptr ? nullptr : exchange;
}

}  // namespace

const Torch* Torch::imported() {
  static const Torch* found = nullptr;  // lives as long as the interpreter
  if (found != nullptr) return found;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = PyDict_GetItemString(modules, "torch");
  // A module that is being imported, by this thread or another, has no Tensor yet.
  if (module == nullptr || !py::hasattr(module, "Tensor") || !py::hasattr(module, "empty_strided")) return nullptr;
  found = new Torch(py::handle(module));
  return found;
}

Torch::Torch(const py::handle& module)
    : exchange_(find_exchange(module.attr("Tensor"))),
      empty_strided_(module.attr("empty_strided")),
      keywords_(py::make_tuple("dtype", "device")),
      module_(py::reinterpret_borrow<py::object>(module)) {
  const py::object type = module.attr("Tensor");
  tensor_type_ = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  if (exchange_ != nullptr) return;
  problem_ = "it is a tensor of torch " + py::str(module.attr("__version__")).cast<std::string>() +
             ", which lacks DLPack's C exchange API: use torch 2.11 or later, or pass numpy arrays";
}

void Torch::note_write(py::handle tensor) {
  py::module_::import("torch.autograd.graph").attr("increment_version")(tensor);
}

ht_tensor Torch::view(py::handle tensor) const {
  ht_tensor out{};
  if (exchange_->view(tensor.ptr(), &out) != 0) throw py::error_already_set();
  return out;
}

bool Torch::may_be_lazy(const ht_tensor& view) {
  if (view.dtype.code == kComplex) return true;
  if (view.dtype.code != 2 || view.dtype.bits < 32) return false;
  for (int32_t d = 0; d < view.ndim; ++d) {
    if (view.shape[d] > 1) return false;
  }
  return true;
}

py::object Torch::plain(py::handle tensor) {
  return tensor.attr("detach")().attr("resolve_conj")().attr("resolve_neg")();
}

py::object Torch::dense(py::handle tensor, bool channels_last) {
  if (!channels_last) return tensor.attr("contiguous")();
  const size_t ndim = tensor.attr("dim")().cast<size_t>();
  py::tuple last(ndim), back(ndim);  // NCHW to NHWC and back
  for (size_t d = 0; d < ndim; ++d) {
    last[d] = d == 0 ? 0 : d + 1 == ndim ? 1 : d + 1;
    back[d] = d == 0 ? 0 : d == 1 ? ndim - 1 : d - 1;
  }
  return tensor.attr("permute")(last).attr("contiguous")().attr("permute")(back);
}

uintptr_t Torch::current_stream(const ht_device& device) const {
  void* stream = nullptr;
  if (exchange_->current_stream(kCuda, device.device_id, &stream) != 0) throw py::error_already_set();
  return stream == nullptr ? kDefaultStream : reinterpret_cast<uintptr_t>(stream);
}

const py::object& Torch::device(const ht_device& device) const {
  const bool host = static_cast<int>(device.device_type) != kCuda;
  const size_t at = host ? 0 : 1 + static_cast<size_t>(device.device_id);
  if (devices_.size() <= at) devices_.resize(at + 1);
  py::object& cached = devices_[at];
  if (!cached) cached = host ? module_.attr("device")("cpu") : module_.attr("device")("cuda", device.device_id);
  return cached;
}

const py::object& Torch::dtype(ht_dtype dtype) const {
  const size_t at = dtype.code * 129U + dtype.bits;
  if (dtypes_.size() <= at) dtypes_.resize(at + 1);
  py::object& cached = dtypes_[at];
  if (cached) return cached;
  const std::string bits = std::to_string(dtype.bits);
  switch (dtype.code) {
    case 0: cached = module_.attr(("int" + bits).c_str()); break;
    case 1: cached = module_.attr(("uint" + bits).c_str()); break;
    case 4: cached = module_.attr(("bfloat" + bits).c_str()); break;
    case kComplex: cached = module_.attr(("complex" + bits).c_str()); break;
    case 6: cached = module_.attr("bool"); break;
    case 10: cached = module_.attr("float8_e4m3fn"); break;
    case 12: cached = module_.attr("float8_e5m2"); break;
    case 14: cached = module_.attr("float8_e8m0fnu"); break;
    default: cached = module_.attr(("float" + bits).c_str()); break;
  }
  return cached;
}

py::object Torch::empty(const ht_tensor& form) const {
  const size_t ndim = static_cast<size_t>(form.ndim);
  py::tuple shape(ndim), strides(ndim);
  for (size_t d = 0; d < ndim; ++d) {
    shape[d] = form.shape[d];
    strides[d] = form.strides[d];
  }
  PyObject* arguments[] = {shape.ptr(), strides.ptr(), dtype(form.dtype).ptr(), device(form.device).ptr()};
  PyObject* made = PyObject_Vectorcall(empty_strided_.ptr(), arguments, 2, keywords_.ptr());
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

}  // namespace hardtack::py_binding
