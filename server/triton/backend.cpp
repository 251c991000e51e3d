// The functions that Triton calls. Nothing is thrown through them.
#include "instance.h"

namespace hardtack::triton {
namespace {

constexpr std::uint32_t kApiMajor = 1;

template <typename Body>
TRITONSERVER_Error* answer(Body body) {
  return to_triton(guarded(body));
}

Outcome initialize(TRITONBACKEND_Backend* handle) {
  std::uint32_t major = 0, minor = 0;
  if (Outcome failed = from_triton(TRITONBACKEND_ApiVersion(&major, &minor))) return failed;
  if (major != kApiMajor) {
    return Fault{TRITONSERVER_ERROR_UNSUPPORTED, "Hardtack's backend is made for version " + std::to_string(kApiMajor) +
                                                     " of Triton's backend interface; this server has " +
                                                     std::to_string(major) + "." + std::to_string(minor)};
  }
  TRITONSERVER_Message* message = nullptr;  // stays Triton's
  if (Outcome failed = from_triton(TRITONBACKEND_BackendConfig(handle, &message))) return failed;
  Json config;
  if (Outcome failed = read_message(message, &config)) return failed;
  auto backend = std::make_unique<Backend>();
  std::vector<std::string> unknown;
  if (Outcome failed = read_backend_settings(config, &backend->settings, &unknown)) return failed;
  for (const std::string& name : unknown) {
    log(TRITONSERVER_LOG_WARN, "--backend-config: the setting \"" + name + "\" is none of Hardtack's; it is ignored");
  }
  Result<Pool> pool = Pool::create(backend->settings.threads);
  if (!pool.ok()) return from_status(pool.status(), "--backend-config=hardtack,threads: ");
  backend->workers.pool = std::move(*pool);
  if (Outcome failed = from_triton(TRITONBACKEND_BackendSetState(handle, backend.get()))) return failed;
  static_cast<void>(backend.release());
  log(TRITONSERVER_LOG_INFO, std::string("Hardtack ") + ht_version() + ", CPU features: " + ht_cpu_features());
  return {};
}

Outcome initialize_instance(TRITONBACKEND_ModelInstance* handle) {
  TRITONBACKEND_Model* model = nullptr;
  void* state = nullptr;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelInstanceModel(handle, &model))) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelState(model, &state))) return failed;
  std::unique_ptr<Instance> instance;
  if (Outcome failed = Instance::create(handle, *static_cast<LoadedModel*>(state), &instance)) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelInstanceSetState(handle, instance.get()))) return failed;
  static_cast<void>(instance.release());
  return {};
}

}  // namespace
}  // namespace hardtack::triton

using namespace hardtack::triton;

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return answer([&] { return initialize(backend); });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return answer([&] {
    void* state = nullptr;
    Outcome failed = from_triton(TRITONBACKEND_BackendState(backend, &state));
    delete static_cast<Backend*>(state);
    return failed;
  });
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  return answer([&] {
    if (Outcome f = from_triton(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true)))
      return f;
    return from_triton(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 1, nullptr, 0));
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return answer([&] {
    std::unique_ptr<LoadedModel> loaded;
    if (Outcome failed = load_model(model, &loaded)) return failed;
    if (Outcome failed = from_triton(TRITONBACKEND_ModelSetState(model, loaded.get()))) return failed;
    static_cast<void>(loaded.release());
    return Outcome();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return answer([&] {
    void* state = nullptr;
    Outcome failed = from_triton(TRITONBACKEND_ModelState(model, &state));
    delete static_cast<LoadedModel*>(state);
    return failed;
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return answer([&] { return initialize_instance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return answer([&] {
    void* state = nullptr;
    Outcome failed = from_triton(TRITONBACKEND_ModelInstanceState(instance, &state));
    delete static_cast<Instance*>(state);
    return failed;
  });
}

// An error here would hand all requests back to Triton; they are answered one by one instead.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests, std::uint32_t num_requests) {
  void* state = nullptr;
  if (TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceState(instance, &state)) return error;
  static_cast<Instance*>(state)->execute(requests, num_requests);
  return nullptr;
}
