/// @file
/// Hardtack's runtime for C++17: owners and views over hardtack.h, nothing else. Header-only, does not throw by itself:
/// only std::bad_alloc can come out of its vectors and strings. Errors, threads and lifetimes are those of the C
/// functions.
///
///     auto model = hardtack::Model::load("model.pkg");
///     if (!model.ok()) return fail(model.status().message());
///     auto session = model->new_session();
///     std::vector<float> x(2 * 3);
///     auto run = session->run({hardtack::Tensor::of(x.data(), {2, 3})});
///     if (!run.ok()) return fail(run.status().message());
///     const float* y = run->at(0).data<float>();
#ifndef HARDTACK_HARDTACK_HPP
#define HARDTACK_HARDTACK_HPP

#include <hardtack/hardtack.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace hardtack {

/// A code and a sentence. Cheap when it is OK.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Takes over what a C function returned.
  explicit Status(ht_status* owned) : handle_(owned) {}

  /// Nothing failed.
  bool ok() const { return handle_ == nullptr; }
  /// HT_OK when ok().
  ht_code code() const { return ht_status_code(handle_.get()); }
  /// One sentence; "" when ok(). Lives as long as this object.
  const char* message() const { return ht_status_message(handle_.get()); }

 private:
  struct Free {
    void operator()(ht_status* status) const { ht_status_free(status); }
  };
  std::unique_ptr<ht_status, Free> handle_;
};

/// As ht_register_op, for a function that was compiled with this header.
inline Status register_op(const char* name, ht_kernel kernel, void* user_data = nullptr) {
  return Status(ht_register_op(name, HT_CALL_ABI_VERSION, kernel, user_data));
}

/// A value or the Status that says why there is none. Owns both.
template <typename T>
class [[nodiscard]] Result {
 public:
  /// @{
  /// Of a value, or of the reason for its absence.
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  /// @}

  /// There is a value.
  bool ok() const { return status_.ok(); }
  /// Lives as long as this object.
  const Status& status() const { return status_; }
  /// @{
  /// Only when ok().
  T& operator*() { return value_; }
  T* operator->() { return &value_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }
  /// @}

 private:
  T value_{};
  Status status_;
};

/// The dtype of a C++ type: float, double, bool, the signed integers of 8 to 64 bits and the unsigned of 8 to 32.
template <typename T>
struct DTypeOf;
/// @cond
#define HARDTACK_DTYPE(type, dl_code, dl_bits)                      \
  template <>                                                       \
  struct DTypeOf<type> {                                            \
    static ht_dtype get() { return ht_dtype{dl_code, dl_bits, 1}; } \
  };
HARDTACK_DTYPE(float, 2, 32)
HARDTACK_DTYPE(double, 2, 64)
HARDTACK_DTYPE(std::int8_t, 0, 8)
HARDTACK_DTYPE(std::int16_t, 0, 16)
HARDTACK_DTYPE(std::int32_t, 0, 32)
HARDTACK_DTYPE(std::int64_t, 0, 64)
HARDTACK_DTYPE(std::uint8_t, 1, 8)
HARDTACK_DTYPE(std::uint16_t, 1, 16)
HARDTACK_DTYPE(std::uint32_t, 1, 32)
HARDTACK_DTYPE(bool, 6, 8)
#undef HARDTACK_DTYPE
/// @endcond

/// A view of somebody's memory, which must stay as long as the view is used; with its own copy of the shape.
class Tensor {
 public:
  Tensor() = default;

  /// Contiguous elements of a C++ type.
  template <typename T>
  static Tensor of(const T* data, std::vector<std::int64_t> shape) {
    return Tensor(data, DTypeOf<T>::get(), std::move(shape), {});
  }

  /// Any dtype; strides in elements, or empty for contiguous.
  Tensor(const void* data, ht_dtype dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
      : data_(const_cast<void*>(data)), dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)) {}

  /// The same tensor as memory of another device: DLDeviceType and the device's number.
  Tensor on(int device_type, int device_id) const {
    Tensor tensor = *this;
    tensor.device_.device_type = static_cast<decltype(device_.device_type)>(device_type);
    tensor.device_.device_id = device_id;
    return tensor;
  }

  /// @{
  /// As given; what Session::run returns has strides always.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }
  ht_dtype dtype() const { return dtype_; }
  ht_device device() const { return device_; }
  /// @}
  /// The first element; not checked against dtype().
  template <typename T = void>
  T* data() const {
    return static_cast<T*>(data_);
  }

  /// The C struct; points into this object.
  ht_tensor c_tensor() const {
    ht_tensor tensor;
    std::memset(&tensor, 0, sizeof tensor);
    tensor.data = data_;
    tensor.device = device_;
    tensor.ndim = static_cast<std::int32_t>(shape_.size());
    tensor.dtype = dtype_;
    tensor.shape = const_cast<std::int64_t*>(shape_.data());
    tensor.strides = strides_.empty() ? nullptr : const_cast<std::int64_t*>(strides_.data());
    return tensor;
  }

 private:
  static ht_device host() {
    ht_device device{};
    device.device_type = static_cast<decltype(device.device_type)>(1);
    return device;
  }

  void* data_ = nullptr;
  ht_dtype dtype_{};
  ht_device device_ = host();
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
};

/// A thread pool that several sessions, on any threads, may share; sessions made with it keep it alive.
class Pool {
 public:
  /// num_threads counts the caller's; 0: one for each core that shortens a run. Errors: see ht_pool_create.
  static Result<Pool> create(std::int32_t num_threads) {
    ht_pool* handle = nullptr;
    if (ht_status* failed = ht_pool_create(num_threads, &handle)) return Status(failed);
    Pool pool;
    pool.handle_.reset(handle);
    return pool;
  }
  /// For ht_session_options.pool; still owned by this object.
  ht_pool* get() const { return handle_.get(); }
  /// See ht_pool_parallel; not for an empty pool.
  const HtParallel* parallel() const { return ht_pool_parallel(handle_.get()); }

 private:
  struct Free {
    void operator()(ht_pool* pool) const { ht_pool_free(pool); }
  };
  std::unique_ptr<ht_pool, Free> handle_;
};

/// Runs a model; one thread at a time. See ht_session_run for what outputs and errors mean. May be moved, also to
/// another thread; one that is empty (default, or moved from) answers every call with HT_INVALID_ARGUMENT.
class Session {
 public:
  /// Runs `entry` (null: the only one). The outputs are views of the session's buffers: valid until its next call, and
  /// no longer than the session. See ht_session_run.
  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs, const char* entry = nullptr) {
    std::vector<ht_tensor> in = c_tensors(inputs);
    std::vector<ht_tensor> out(count_outputs(entry));
    if (!out.empty()) std::memset(out.data(), 0, out.size() * sizeof(ht_tensor));
    Status status(ht_session_run(get(), entry, in.data(), in.size(), out.data(), out.size()));
    if (!status.ok()) return status;
    std::vector<Tensor> views;
    views.reserve(out.size());
    for (const ht_tensor& t : out) {
      std::vector<std::int64_t> shape(t.shape, t.shape + t.ndim), strides(t.strides, t.strides + t.ndim);
      const Tensor view(static_cast<char*>(t.data) + t.byte_offset, t.dtype, std::move(shape), std::move(strides));
      views.push_back(view.on(static_cast<int>(t.device.device_type), static_cast<int>(t.device.device_id)));
    }
    return views;
  }

  /// The same without any allocation of its own, and with the caller's buffers where `outputs[i].data` is set: exactly
  /// ht_session_run.
  Status run(const char* entry, const ht_tensor* inputs, std::size_t num_inputs, ht_tensor* outputs,
             std::size_t num_outputs) {
    return Status(ht_session_run(get(), entry, inputs, num_inputs, outputs, num_outputs));
  }

  /// Fills the outputs' device, dtype, ndim, shape and strides for these inputs; runs nothing. See ht_session_bind.
  Status bind(const char* entry, const ht_tensor* inputs, std::size_t num_inputs, ht_tensor* outputs,
              std::size_t num_outputs) {
    return Status(ht_session_bind(get(), entry, inputs, num_inputs, outputs, num_outputs));
  }

  /// States return to their initial values. See ht_session_reset.
  Status reset() { return Status(ht_session_reset(get())); }
  /// From any thread: asks the run that is under way to stop. See ht_session_interrupt.
  void interrupt() { ht_session_interrupt(get()); }
  /// CUDA: waits for all runs so far, and says what went wrong in them. See ht_session_synchronize.
  Status synchronize() { return Status(ht_session_synchronize(get())); }
  /// CUDA: later runs go to this stream, which must live as long as the session. See ht_session_set_stream.
  Status set_stream(void* stream) { return Status(ht_session_set_stream(get(), stream)); }
  /// Gives back everything but the states; outputs of earlier runs are gone. See ht_session_trim.
  Status trim() { return Status(ht_session_trim(get())); }
  /// @{
  /// Copies a state's bytes; nbytes must be the state's. See ht_session_read_state.
  Status read_state(const char* name, void* data, std::size_t nbytes) {
    return Status(ht_session_read_state(get(), name, data, nbytes));
  }
  Status write_state(const char* name, const void* data, std::size_t nbytes) {
    return Status(ht_session_write_state(get(), name, data, nbytes));
  }
  /// @}
  /// Calls `observer` with `user` after every instruction; null takes it away. See ht_session_set_observer.
  Status set_observer(ht_observer observer, void* user) {
    return Status(ht_session_set_observer(get(), observer, user));
  }
  /// What the session holds now; zeros for one that is empty or that another thread is using.
  ht_memory_info memory() const {
    ht_memory_info info{};
    info.struct_size = sizeof info;
    Status ignored(ht_session_memory(get(), &info));
    return info;
  }
  /// For the C functions; still owned by this object.
  ht_session* get() const { return handle_.get(); }

 private:
  friend class Model;
  struct Free {
    void operator()(ht_session* session) const { ht_session_free(session); }
  };
  // 0 where there is no such entry or no session: ht_session_run says so then.
  std::size_t count_outputs(const char* entry) const {
    if (model_ == nullptr) return 0;
    const std::size_t index = entry == nullptr ? 0 : ht_model_find_entry(model_.get(), entry);
    const ht_entry_info* info = ht_model_entry(model_.get(), index);
    return info == nullptr ? 0 : info->num_outputs;
  }
  static std::vector<ht_tensor> c_tensors(const std::vector<Tensor>& tensors) {
    std::vector<ht_tensor> result;
    result.reserve(tensors.size());
    for (const Tensor& tensor : tensors) result.push_back(tensor.c_tensor());
    return result;
  }

  std::unique_ptr<ht_session, Free> handle_;
  std::shared_ptr<ht_model> model_;  // which outputs an entry has; the last Model may be gone
};

/// A loaded bundle: immutable, shared by copying, safe to use from any number of threads.
class Model {
 public:
  /// The bundle at `path`; its weights are mapped unless the options say otherwise. Errors: see ht_model_load.
  static Result<Model> load(const std::string& path, const ht_load_options* options = nullptr) {
    ht_model* handle = nullptr;
    if (ht_status* failed = ht_model_load(path.c_str(), options, &handle)) return Status(failed);
    return Model(handle);
  }
  /// From memory; the bytes are copied. Errors: see ht_model_load.
  static Result<Model> load(const void* data, std::size_t nbytes, const ht_load_options* options = nullptr) {
    ht_model* handle = nullptr;
    if (ht_status* failed = ht_model_load_memory(data, nbytes, nullptr, nullptr, options, &handle)) {
      return Status(failed);
    }
    return Model(handle);
  }

  /// No model: only good for assigning to; new_session gives HT_INVALID_ARGUMENT, anything else must not be called.
  Model() = default;

  /// A session, which keeps the model alive. Errors: see ht_session_create.
  Result<Session> new_session(const ht_session_options* options = nullptr) const {
    ht_session* handle = nullptr;
    if (ht_status* failed = ht_session_create(get(), options, &handle)) return Status(failed);
    Session session;
    session.handle_.reset(handle);
    session.model_ = handle_;
    return session;
  }

  /// @{
  /// Null when an index is out of range; what they point to lives as long as the model.
  const ht_model_info& info() const { return *ht_model_get_info(get()); }
  const ht_entry_info* entry(std::size_t i) const { return ht_model_entry(get(), i); }
  const ht_tensor_info* input(std::size_t entry, std::size_t i) const { return ht_model_input(get(), entry, i); }
  const ht_tensor_info* output(std::size_t entry, std::size_t i) const { return ht_model_output(get(), entry, i); }
  const ht_sym_info* sym(std::size_t entry, std::size_t i) const { return ht_model_sym(get(), entry, i); }
  const ht_array_info* state(std::size_t i) const { return ht_model_state(get(), i); }
  const ht_array_info* constant(std::size_t i) const { return ht_model_constant(get(), i); }
  const ht_target_info* target(std::size_t i) const { return ht_model_target(get(), i); }
  /// @}
  /// For the C functions; still owned by this object.
  ht_model* get() const { return handle_.get(); }

 private:
  explicit Model(ht_model* handle) : handle_(handle, [](ht_model* model) { ht_model_free(model); }) {}
  std::shared_ptr<ht_model> handle_;
};

}  // namespace hardtack

#endif  // HARDTACK_HARDTACK_HPP
