// What the operator says: --backend-config=hardtack,... for all models, `parameters` in config.pbtxt for one.
#ifndef HARDTACK_TRITON_SETTINGS_H
#define HARDTACK_TRITON_SETTINGS_H

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fault.h"

namespace hardtack::triton {

using Json = nlohmann::json;
using Key = std::array<std::uint8_t, 32>;

struct BackendSettings {
  std::int32_t threads = 0;  // of the pool that instances share; 0: as many as the process may use
  std::int32_t default_max_batch_size = 4;
  std::vector<Key> trusted_keys;  // not empty: every bundle must be signed by one of them
};

struct ModelSettings {
  std::int32_t threads = 0;  // of each instance; 0: the pool that instances share
  std::string device, cuda_driver, target, entry, weights;
  std::vector<Key> trusted_keys;
  bool copy_weights = true;
  bool verify_weights = false;
  bool dynamic_batching = true;
};

/// `config` as TRITONBACKEND_BackendConfig gives it: {"cmdline": {name: text}}, with what is said for all backends.
/// `unknown` gets the names that are neither Hardtack's nor Triton's.
Outcome read_backend_settings(const Json& config, BackendSettings* settings, std::vector<std::string>* unknown);

/// From `parameters` of a model's configuration. `unknown` gets the names that are not Hardtack's.
Outcome read_model_settings(const Json& config, const BackendSettings& backend, ModelSettings* settings,
                            std::vector<std::string>* unknown);

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_SETTINGS_H
