#include "loaded_model.h"

#include <filesystem>

namespace hardtack::triton {
namespace {

namespace fs = std::filesystem;

// What Triton writes for a model folder called NAME.hardtack without a configuration.
constexpr const char* kTritonsGuess = "model.hardtack";

Outcome read_config(TRITONBACKEND_Model* handle, Json* config) {
  TRITONSERVER_Message* message = nullptr;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelConfig(handle, 1, &message))) return failed;
  Outcome failed = read_message(message, config);
  log_if_failed(TRITONSERVER_MessageDelete(message));
  return failed;
}

Outcome write_config(TRITONBACKEND_Model* handle, const Json& config) {
  const std::string text = config.dump();
  TRITONSERVER_Message* message = nullptr;
  if (Outcome f = from_triton(TRITONSERVER_MessageNewFromSerializedJson(&message, text.data(), text.size()))) return f;
  Outcome failed = from_triton(TRITONBACKEND_ModelSetConfig(handle, 1, message));
  log_if_failed(TRITONSERVER_MessageDelete(message));
  return failed;
}

// default_model_filename if the configuration has one, else model.pkg, else the only .pkg of the folder.
Outcome find_bundle(const fs::path& folder, const Json& config, fs::path* bundle) {
  const std::string given = config.value("default_model_filename", "");
  const std::string name = given.empty() || given == kTritonsGuess ? "model.pkg" : given;
  *bundle = folder / name;
  std::error_code error;
  if (fs::exists(*bundle, error)) return {};
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".pkg") found.push_back(entry.path().filename().string());
  }
  if (name == "model.pkg" && found.size() == 1) return *bundle = folder / found[0], Outcome();
  std::sort(found.begin(), found.end());
  std::string names;
  for (const std::string& other : found) names += (names.empty() ? "" : ", ") + other;
  return Fault{TRITONSERVER_ERROR_NOT_FOUND,
               "there is no " + name + " in " + folder.string() + (found.empty() ? "" : ", only " + names) +
                   "; put the bundle there as model.pkg, or name it: default_model_filename"};
}

Outcome load_bundle(const fs::path& folder, const fs::path& bundle, LoadedModel* loaded) {
  const ModelSettings& settings = loaded->settings;
  const std::string weights = settings.weights.empty() ? "" : (folder / settings.weights).string();
  ht_load_options options = ht_load_options_default();
  options.device = settings.device.empty() ? nullptr : settings.device.c_str();
  options.cuda_driver = settings.cuda_driver.empty() ? nullptr : settings.cuda_driver.c_str();
  options.target = settings.target.empty() ? nullptr : settings.target.c_str();
  options.weights_path = weights.empty() ? nullptr : weights.c_str();
  options.copy_weights = settings.copy_weights ? 1 : 0;
  options.verify_weights = settings.verify_weights ? 1 : 0;
  options.require_trusted_signature = settings.trusted_keys.empty() ? 0 : 1;
  static_assert(sizeof(Key) == 32, "keys lie one behind the other");
  options.trusted_keys = reinterpret_cast<const std::uint8_t(*)[32]>(settings.trusted_keys.data());
  options.num_trusted_keys = settings.trusted_keys.size();
  Result<Model> model = Model::load(bundle.string(), &options);
  if (!model.ok()) return from_status(model.status());
  loaded->model = *model;
  return {};
}

Outcome load(TRITONBACKEND_Model* handle, LoadedModel* loaded) {
  Json config;
  if (Outcome failed = read_config(handle, &config)) return failed;
  std::vector<std::string> unknown;
  if (Outcome f = read_model_settings(config, loaded->backend->settings, &loaded->settings, &unknown)) return f;
  for (const std::string& name : unknown) {
    log(TRITONSERVER_LOG_WARN, loaded->label + ": the parameter \"" + name + "\" is none of Hardtack's; it is ignored");
  }
  for (const std::string& name : ignored_features(config)) {
    log(TRITONSERVER_LOG_WARN, loaded->label + ": Hardtack does not use " + name + " of the configuration");
  }
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* location = nullptr;
  std::uint64_t version = 0;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelRepository(handle, &type, &location))) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelVersion(handle, &version))) return failed;
  const fs::path folder = fs::path(location) / std::to_string(version);
  fs::path bundle;
  if (Outcome failed = find_bundle(folder, config, &bundle)) return failed;
  if (Outcome failed = load_bundle(folder, bundle, loaded)) return failed;
  if (Outcome failed = read_contract(loaded->model, loaded->settings.entry, &loaded->contract)) return failed;
  const bool says_batch = config.value("max_batch_size", 0) > 0;
  bool complete = false;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelAutoCompleteConfig(handle, &complete))) return failed;
  if (complete && complete_config(loaded->contract, loaded->backend->settings, loaded->settings, &config)) {
    if (Outcome failed = write_config(handle, config)) return failed;
  }
  if (Outcome failed = check_config(loaded->contract, config, &loaded->layout)) return failed;
  const std::int64_t max_batch_size = loaded->layout.max_batch_size;
  if (!says_batch && max_batch_size > 1) {
    log(TRITONSERVER_LOG_INFO, loaded->label +
                                   ": the configuration does not say max_batch_size; requests may be joined along " +
                                   loaded->contract.batch.text + ", up to " + std::to_string(max_batch_size) +
                                   " rows. If the model mixes rows, give all dimensions of its inputs");
  }
  log(TRITONSERVER_LOG_INFO, loaded->label + ": " + bundle.filename().string() + ", entry point " +
                                 loaded->contract.entry + ", target " + loaded->model.info().target +
                                 ", max_batch_size " + std::to_string(max_batch_size));
  return {};
}

}  // namespace

Outcome read_message(TRITONSERVER_Message* message, Json* json) {
  const char* text = nullptr;
  std::size_t nbytes = 0;
  if (Outcome failed = from_triton(TRITONSERVER_MessageSerializeToJson(message, &text, &nbytes))) return failed;
  *json = Json::parse(text, text + nbytes);
  return {};
}

Outcome load_model(TRITONBACKEND_Model* handle, std::unique_ptr<LoadedModel>* loaded) {
  const char* name = nullptr;
  std::uint64_t version = 0;
  TRITONBACKEND_Backend* backend = nullptr;
  void* state = nullptr;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelName(handle, &name))) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelVersion(handle, &version))) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_ModelBackend(handle, &backend))) return failed;
  if (Outcome failed = from_triton(TRITONBACKEND_BackendState(backend, &state))) return failed;
  auto model = std::make_unique<LoadedModel>();
  model->label = std::string(name) + " version " + std::to_string(version);
  model->backend = static_cast<Backend*>(state);
  if (Outcome failed = load(handle, model.get())) {
    failed->message = model->label + ": " + failed->message;
    return failed;
  }
  *loaded = std::move(model);
  return {};
}

}  // namespace hardtack::triton
