#include "config.h"

#include <algorithm>

namespace hardtack::triton {
namespace {

// Sequences that one instance holds at once, and how long they may be silent, where the configuration leaves it open.
constexpr int kNumSequences = 32;
constexpr std::int64_t kSequenceIdleUs = 10'000'000;

using Dims = std::vector<std::int64_t>;

Dims dims_of(const Json& port) { return port.value("dims", Dims{}); }
Dims reshape_of(const Json& port) { return port["reshape"].value("shape", Dims{}); }

std::string text_of(const Dims& dims) {
  std::string result = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) result += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return result + "]";
}

std::string config_type(const Port& port) { return std::string("TYPE_") + type_name(port.type); }

// As a configuration writes them: -1 for a size that varies, [1] where no dimension is left.
Dims config_dims(const Port& port, bool batched) {
  Dims dims;
  for (std::size_t d = batched ? 1 : 0; d < port.dims.size(); ++d) {
    dims.push_back(port.dims[d].fixed() && port.dims[d].lo > 0 ? port.dims[d].lo : -1);
  }
  if (dims.empty()) dims.push_back(1);
  return dims;
}

Json config_port(const Port& port, bool batched) {
  return Json{{"name", port.name}, {"data_type", config_type(port)}, {"dims", config_dims(port, batched)}};
}

bool has_items(const Json& config, const char* key) { return config.contains(key) && !config[key].empty(); }

// Dimensions given in full, as models without a batch dimension of Triton's have them.
bool written_in_full(const Contract& contract, const Json& config) {
  for (const char* key : {"input", "output"}) {
    const std::vector<Port>& ports = key[0] == 'i' ? contract.inputs : contract.outputs;
    for (const Json& item : config.value(key, Json::array())) {
      const auto port =
          std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == item.value("name", ""); });
      if (port != ports.end() && port->dims.size() > 1) return dims_of(item).size() == port->dims.size();
    }
  }
  return false;
}

std::int64_t completed_batch_size(const Contract& contract, const BackendSettings& backend, const Json& config) {
  if (!contract.batchable() || contract.has_states || has_items(config, "sequence_batching")) return 0;
  if (written_in_full(contract, config)) return 0;
  const std::int64_t size = std::min<std::int64_t>(backend.default_max_batch_size, contract.batch.hi);
  return size < contract.batch.lo ? 0 : size;
}

// Names of the tensors that the sequence batcher makes: a model may take them as inputs.
std::vector<std::string> control_names(const Json& config) {
  std::vector<std::string> names;
  const Json sequences = config.value("sequence_batching", Json::object());
  for (const Json& control : sequences.value("control_input", Json::array())) {
    names.push_back(control.value("name", ""));
  }
  return names;
}

bool dims_agree(const Port& port, bool batched, const Json& item) {
  const Dims dims = item.contains("reshape") ? reshape_of(item) : dims_of(item);
  const std::size_t skipped = batched ? 1 : 0, rank = port.dims.size() - skipped;
  if (rank == 0 && !item.contains("reshape")) return dims == Dims{1};
  if (dims.size() != rank) return false;
  for (std::size_t d = 0; d < rank; ++d) {
    const Dim& dim = port.dims[d + skipped];
    const bool open = dims[d] == -1 && (!dim.fixed() || dim.lo <= 0);
    if (!open && (dims[d] < dim.lo || dims[d] > dim.hi)) return false;
  }
  return true;
}

Outcome check_port(const Contract& contract, const Port& port, std::int64_t max_batch_size, const std::string& what,
                   const Json& item) {
  const bool batched = max_batch_size > 0;
  const std::string type = item.value("data_type", "");
  if (type != config_type(port) || !dims_agree(port, batched, item)) {
    std::string message = what + ": the configuration says " + type + " " + text_of(dims_of(item));
    if (item.contains("reshape")) {
      message += " reshaped to " + text_of(reshape_of(item));
    }
    message += " with max_batch_size " + std::to_string(max_batch_size) + ", but in the bundle's entry point " +
               contract.entry + " it is " + port.text() + ", that is " + config_type(port) + " " +
               text_of(config_dims(port, batched));
    if (type == "TYPE_STRING")
      message += "; Hardtack has no strings (BYTES): turn them into numbers in front of the model";
    return refuse(message);
  }
  for (const char* flag : {"optional", "is_shape_tensor", "is_non_linear_format_io"}) {
    if (item.value(flag, false)) {
      return refuse(what + ": the configuration sets " + flag + ", but a bundle takes every input, as a plain tensor");
    }
  }
  return {};
}

std::string names_of(const std::vector<Port>& ports) {
  std::string result;
  for (const Port& port : ports) result += (result.empty() ? "" : ", ") + port.name;
  return result;
}

// Every item of the configuration is one of `ports`; `found` marks which.
Outcome check_ports(const Contract& contract, const Json& config, bool inputs, std::int64_t max_batch_size,
                    std::vector<const Json*>* found) {
  const std::vector<Port>& ports = inputs ? contract.inputs : contract.outputs;
  const char* kind = inputs ? "input" : "output";
  found->assign(ports.size(), nullptr);
  if (!config.contains(kind)) return {};
  for (const Json& item : config[kind]) {
    const std::string name = item.value("name", ""), what = std::string(kind) + " '" + name + "'";
    const auto port = std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
    if (port == ports.end()) {
      return refuse(what + " is in the configuration, but the " + kind + "s of the bundle's entry point " +
                    contract.entry + " are " + names_of(ports));
    }
    if (Outcome failed = check_port(contract, *port, max_batch_size, what, item)) return failed;
    const Json*& place = (*found)[static_cast<std::size_t>(port - ports.begin())];
    if (place != nullptr) return refuse(what + " is twice in the configuration");
    place = &item;
  }
  return {};
}

Outcome check_batch(const Contract& contract, std::int64_t max_batch_size) {
  if (max_batch_size == 0) return {};
  const std::string given = "the configuration says max_batch_size " + std::to_string(max_batch_size);
  if (!contract.batchable()) {
    return refuse(given + ", but in the bundle's entry point " + contract.entry + " " + contract.not_batchable +
                  ": say max_batch_size: 0 and give all dimensions");
  }
  if (max_batch_size < contract.batch.lo || max_batch_size > contract.batch.hi) {
    return refuse(given + ", but in the bundle the batch dimension " + contract.batch.text + " goes from " +
                  std::to_string(contract.batch.lo) + " to " + std::to_string(contract.batch.hi));
  }
  return {};
}

Outcome check_features(const Json& config) {
  for (const char* key : {"batch_input", "batch_output"}) {
    if (has_items(config, key))
      return refuse(std::string("the configuration has ") + key + ", which Hardtack does not offer");
  }
  if (config.value("model_transaction_policy", Json::object()).value("decoupled", false)) {
    return refuse("the configuration says decoupled, but a bundle gives one response to a request");
  }
  for (const Json& group : config.value("instance_group", Json::array())) {
    if (group.value("kind", "") == "KIND_GPU") {
      return refuse(
          "the configuration has an instance_group of KIND_GPU; say KIND_CPU, and name the device with "
          "parameters { key: \"device\" value: { string_value: \"cuda:0\" } }");
    }
  }
  return {};
}

Outcome check_sequences(const Contract& contract, const Json& config, Layout* layout) {
  if (!has_items(config, "sequence_batching")) {
    if (!contract.has_states) return {};
    return refuse(
        "the bundle has states, which live as long as a sequence of requests, but the configuration has no "
        "sequence_batching: add sequence_batching { oldest { max_candidate_sequences: 32 } }");
  }
  const Json& sequences = config["sequence_batching"];
  if (has_items(sequences, "state")) {
    return refuse(
        "the configuration has sequence_batching.state; a bundle's states are its own, not inputs and "
        "outputs: leave it out");
  }
  if (sequences.value("iterative_sequence", false)) {
    return refuse(
        "the configuration sets sequence_batching.iterative_sequence, but a bundle answers a request in one run: "
        "leave it out");
  }
  const std::int64_t candidates = sequences.value("oldest", Json::object()).value("max_candidate_sequences", 0);
  layout->num_sequences =
      static_cast<std::size_t>(candidates > 0 ? candidates : std::max<std::int64_t>(1, layout->max_batch_size));
  return {};
}

}  // namespace

std::vector<std::string> ignored_features(const Json& config) {
  std::vector<std::string> names;
  for (const char* key : {"cc_model_filenames", "model_operations"}) {
    if (has_items(config, key)) names.emplace_back(key);
  }
  const Json optimization = config.value("optimization", Json::object());
  for (const char* key : {"graph", "cuda", "execution_accelerators"}) {
    if (has_items(optimization, key)) names.push_back(std::string("optimization.") + key);
  }
  return names;
}

bool complete_config(const Contract& contract, const BackendSettings& backend, const ModelSettings& settings,
                     Json* config) {
  const Json before = *config;
  if (config->value("max_batch_size", 0) == 0) {
    (*config)["max_batch_size"] = completed_batch_size(contract, backend, *config);
  }
  const std::int64_t max_batch_size = (*config)["max_batch_size"];
  const std::vector<std::string> controls = control_names(*config);
  for (const char* key : {"input", "output"}) {
    if (has_items(*config, key)) continue;
    Json items = Json::array();
    for (const Port& port : key[0] == 'i' ? contract.inputs : contract.outputs) {
      if (std::find(controls.begin(), controls.end(), port.name) == controls.end()) {
        items.push_back(config_port(port, max_batch_size > 0));
      }
    }
    (*config)[key] = items;
  }
  const bool scheduled = config->contains("dynamic_batching") || config->contains("sequence_batching");
  if (!scheduled && contract.has_states) {
    (*config)["sequence_batching"] = {{"max_sequence_idle_microseconds", kSequenceIdleUs},
                                      {"oldest", {{"max_candidate_sequences", kNumSequences}}}};
  } else if (!scheduled && max_batch_size > 1 && settings.dynamic_batching) {
    (*config)["dynamic_batching"] = Json::object();
  }
  return *config != before;
}

Outcome check_config(const Contract& contract, const Json& config, Layout* layout) {
  layout->max_batch_size = config.value("max_batch_size", 0);
  if (Outcome failed = check_features(config)) return failed;
  if (Outcome failed = check_batch(contract, layout->max_batch_size)) return failed;
  std::vector<const Json*> found;
  if (Outcome failed = check_ports(contract, config, true, layout->max_batch_size, &found)) return failed;
  const std::vector<std::string> controls = control_names(config);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& name = contract.inputs[i].name;
    if (found[i] == nullptr && std::find(controls.begin(), controls.end(), name) == controls.end()) {
      return refuse("input '" + name + "', " + contract.inputs[i].text() + ", of the bundle's entry point " +
                    contract.entry + " is not in the configuration");
    }
  }
  if (Outcome failed = check_ports(contract, config, false, layout->max_batch_size, &found)) return failed;
  layout->reshaped.clear();
  for (const Json* item : found) layout->reshaped.push_back(item != nullptr && item->contains("reshape"));
  return check_sequences(contract, config, layout);
}

}  // namespace hardtack::triton
