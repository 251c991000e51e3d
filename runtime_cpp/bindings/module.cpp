// hardtack._native: the runtime for Python. hardtack/runtime.py is its only user; this layer knows no pytrees.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "info.h"
#include "session.h"

namespace hardtack::py_binding {
namespace {

PyObject* native_error = nullptr;
PyObject* input_problem = nullptr;

// Whom a load or a check trusts; its options point into it.
struct Trusted {
  std::vector<std::string> keys;
  std::string path;
  std::string model;
  std::vector<uint8_t> bytes;

  void set(ht_load_options* options) {
    for (const std::string& key : keys) {
      if (key.size() != 32) throw py::value_error("a trusted key has 32 bytes");
      bytes.insert(bytes.end(), key.begin(), key.end());
    }
    options->require_trusted_signature = !keys.empty();
    options->trusted_keys = reinterpret_cast<const uint8_t(*)[32]>(bytes.data());
    options->num_trusted_keys = keys.size();
    options->trusted_keys_path = path.empty() ? nullptr : path.c_str();
    options->signed_model = model.empty() ? nullptr : model.c_str();
  }
};

ModelHandle load(const std::string& path, const std::string& device, const std::string& target, Trusted trusted,
                 bool verify_weights, bool copy_weights, const std::string& weights, const std::string& cuda_driver) {
  ht_load_options options = ht_load_options_default();
  trusted.set(&options);
  options.weights_path = weights.empty() ? nullptr : weights.c_str();
  options.device = device.c_str();
  options.target = target.empty() ? nullptr : target.c_str();
  options.verify_weights = verify_weights;
  options.copy_weights = copy_weights;
  options.cuda_driver = cuda_driver.empty() ? nullptr : cuda_driver.c_str();
  ht_model* model = nullptr;
  ht_status* failed = nullptr;
  {
    const py::gil_scoped_release unlocked;
    failed = ht_model_load(path.c_str(), &options, &model);
  }
  check(failed);
  return ModelHandle(model, ModelFree());
}

py::dict verify_file(const std::string& path, const std::vector<std::string>& trusted_keys, const std::string& weights,
                     const std::string& trusted_keys_path, const std::string& signed_model) {
  Trusted trusted = {trusted_keys, trusted_keys_path, signed_model, {}};
  ht_load_options options = ht_load_options_default();
  trusted.set(&options);
  options.weights_path = weights.empty() ? nullptr : weights.c_str();
  ht_verify_report report{};
  report.struct_size = sizeof report;
  ht_status* failed = nullptr;
  {
    const py::gil_scoped_release unlocked;
    failed = ht_verify_file(path.c_str(), &options, &report);
  }
  check(failed);
  py::dict out;
  out["num_members"] = report.num_members;
  out["num_plans"] = report.num_plans;
  out["num_instructions"] = report.num_instructions;
  out["num_libraries"] = report.num_libraries;
  out["num_constants"] = report.num_constants;
  out["weights_nbytes"] = report.weights_nbytes;
  out["has_signature"] = report.has_signature != 0;
  out["trusted"] = report.trusted != 0;
  return out;
}

// The function at an address, which stays for good; numbers, since what they point to is nothing of Python's.
void register_op(const std::string& name, uint32_t abi_version, uintptr_t kernel, uintptr_t user_data) {
  check(ht_register_op(name.c_str(), abi_version, reinterpret_cast<ht_kernel>(kernel),
                       reinterpret_cast<void*>(user_data)));
}

class PyPool {
 public:
  explicit PyPool(int32_t num_threads) {
    ht_pool* pool = nullptr;
    check(ht_pool_create(num_threads, &pool));
    handle_.reset(pool);
  }
  ht_pool* get() const { return handle_.get(); }

 private:
  PoolHandle handle_;
};

class PyModel {
 public:
  explicit PyModel(ModelHandle handle) : handle_(std::move(handle)) {}
  ht_model* get() const { return handle_.get(); }
  const ModelHandle& handle() const { return handle_; }

 private:
  ModelHandle handle_;
};

}  // namespace

void check(ht_status* failed) {
  if (failed == nullptr) return;
  const std::unique_ptr<ht_status, void (*)(ht_status*)> owned(failed, ht_status_free);
  // A message may hold a name out of a file that is no UTF-8.
  const char* message = ht_status_message(failed);
  PyObject* text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)), "replace");
  if (text == nullptr) throw py::error_already_set();
  const py::tuple arguments =
      py::make_tuple(ht_code_name(ht_status_code(failed)), py::reinterpret_steal<py::str>(text));
  PyErr_SetObject(native_error, arguments.ptr());
  throw py::error_already_set();
}

PYBIND11_MODULE(_native, m) {
  m.doc() = "Hardtack's runtime; use hardtack.load.";
  native_error = PyErr_NewException("hardtack._native.NativeError", nullptr, nullptr);
  input_problem = PyErr_NewException("hardtack._native.InputProblem", nullptr, nullptr);
  m.add_object("NativeError", py::reinterpret_borrow<py::object>(native_error));
  m.add_object("InputProblem", py::reinterpret_borrow<py::object>(input_problem));
  py::register_exception_translator([](std::exception_ptr caught) {
    try {
      if (caught) std::rethrow_exception(caught);
    } catch (const InputProblem& problem) {
      PyErr_SetObject(input_problem, py::make_tuple(problem.index, problem.message, problem.needs_contract).ptr());
    }
  });
  m.def("version", &ht_version);
  m.def("cpu_features", &ht_cpu_features);
  m.def("register_op", &register_op, py::arg("name"), py::arg("abi_version"), py::arg("kernel"), py::arg("user_data"));
  m.def("verify_file", &verify_file, py::arg("path"), py::arg("trusted_keys") = std::vector<std::string>(),
        py::arg("weights") = "", py::arg("trusted_keys_path") = "", py::arg("signed_model") = "");
  py::class_<PyPool>(m, "Pool").def(py::init<int32_t>(), py::arg("num_threads"));
  py::class_<PyModel>(m, "Model")
      .def(py::init([](const std::string& path, const std::string& device, const std::string& target,
                       const std::vector<std::string>& keys, bool verify_weights, bool copy_weights,
                       const std::string& weights, const std::string& cuda_driver, const std::string& keys_path,
                       const std::string& signed_model) {
             return PyModel(load(path, device, target, {keys, keys_path, signed_model, {}}, verify_weights,
                                 copy_weights, weights, cuda_driver));
           }),
           py::arg("path"), py::arg("device"), py::arg("target"), py::arg("trusted_keys"), py::arg("verify_weights"),
           py::arg("copy_weights"), py::arg("weights"), py::arg("cuda_driver"), py::arg("trusted_keys_path"),
           py::arg("signed_model"))
      .def("info", [](const PyModel& self) { return model_info(self.get()); })
      .def("entries", [](const PyModel& self) { return entries_info(self.get()); });
  py::class_<DeviceTensor>(m, "DeviceTensor")
      .def_property_readonly("shape", &DeviceTensor::shape)
      .def_property_readonly("dtype", &DeviceTensor::dtype)
      .def("__dlpack_device__", &DeviceTensor::dlpack_device)
      .def("__dlpack__", [](const DeviceTensor& self, const py::kwargs&) { return self.dlpack(); });
  py::class_<PySession>(m, "Session")
      .def(py::init([](const PyModel& model, const PyPool& pool, uint64_t max_nbytes, uintptr_t stream,
                       bool asynchronous, bool graphs, int outputs) {
             const SessionSpec spec = {max_nbytes, stream, asynchronous, graphs, outputs};
             return std::make_unique<PySession>(model.handle(), pool.get(), spec);
           }),
           py::arg("model"), py::arg("pool"), py::arg("max_nbytes"), py::arg("stream"), py::arg("asynchronous"),
           py::arg("graphs"), py::arg("outputs"))
      .def("run", &PySession::run, py::arg("entry"), py::arg("leaves"), py::arg("again") = py::none())
      .def("synchronize", &PySession::synchronize)
      .def("reset", &PySession::reset)
      .def("trim", &PySession::trim)
      .def("memory", &PySession::memory)
      .def("read_state", &PySession::read_state)
      .def("write_state", &PySession::write_state)
      .def("set_observer", &PySession::set_observer);
}

}  // namespace hardtack::py_binding
