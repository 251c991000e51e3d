// One version of one model of Triton's repository: a bundle, loaded once, shared by all instances.
#ifndef HARDTACK_TRITON_LOADED_MODEL_H
#define HARDTACK_TRITON_LOADED_MODEL_H

#include <memory>

#include "config.h"
#include "server/core/spread.h"

namespace hardtack::triton {

/// What lives as long as the backend is loaded.
struct Backend {
  BackendSettings settings;
  serve::Workers workers;  // shared by instances without `threads` of their own
};

struct LoadedModel {
  std::string label;  // "mlp version 1", for messages
  ModelSettings settings;
  Model model;
  Contract contract;
  Layout layout;
  Backend* backend = nullptr;
};

/// Reads the configuration, loads the bundle, completes the configuration if Triton asks for it, checks it.
Outcome load_model(TRITONBACKEND_Model* handle, std::unique_ptr<LoadedModel>* loaded);

/// The JSON text of a message of Triton's.
Outcome read_message(TRITONSERVER_Message* message, Json* json);

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_LOADED_MODEL_H
