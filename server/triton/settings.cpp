#include "settings.h"

#include <charconv>

namespace hardtack::triton {
namespace {

template <typename Int>
Outcome read_count(const std::string& name, const std::string& text, Int* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error != std::errc() || stop != end || *value < 0) {
    return refuse(name + " is \"" + text + "\"; expected a count from 0");
  }
  return {};
}

Outcome read_switch(const std::string& name, const std::string& text, bool* value) {
  if (text != "true" && text != "false") return refuse(name + " is \"" + text + "\"; expected true or false");
  *value = text == "true";
  return {};
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// 64 hexadecimal digits each, separated by commas.
Outcome read_keys(const std::string& name, const std::string& text, std::vector<Key>* keys) {
  std::size_t at = 0;
  while (true) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    Key key{};
    bool good = comma - at == 2 * key.size();
    for (std::size_t i = 0; good && i < key.size(); ++i) {
      const int high = digit_of(text[at + 2 * i]), low = digit_of(text[at + 2 * i + 1]);
      good = high >= 0 && low >= 0;
      key[i] = static_cast<std::uint8_t>(high * 16 + low);
    }
    if (!good) {
      std::string message = name;
      message += " is \"";
      message += text;
      message += "\"; expected ed25519 public keys of 64 hexadecimal digits, separated by commas";
      return refuse(std::move(message));
    }
    keys->push_back(key);
    if (comma == text.size()) return {};
    at = comma + 1;
  }
}

}  // namespace

Outcome read_backend_settings(const Json& config, BackendSettings* settings) {
  const Json cmdline = config.value("cmdline", Json::object());
  const std::string prefix = "--backend-config=hardtack,";
  if (cmdline.contains("threads")) {
    if (Outcome f = read_count(prefix + "threads", cmdline["threads"].get<std::string>(), &settings->threads)) return f;
  }
  if (cmdline.contains("default-max-batch-size")) {
    const std::string text = cmdline["default-max-batch-size"].get<std::string>();
    if (Outcome f = read_count("default-max-batch-size", text, &settings->default_max_batch_size)) return f;
  }
  if (cmdline.contains("trusted-keys")) {
    const std::string text = cmdline["trusted-keys"].get<std::string>();
    if (Outcome f = read_keys(prefix + "trusted-keys", text, &settings->trusted_keys)) return f;
  }
  return {};
}

Outcome read_model_settings(const Json& config, const BackendSettings& backend, ModelSettings* settings,
                            std::vector<std::string>* unknown) {
  const Json parameters = config.value("parameters", Json::object());
  for (const auto& [name, value] : parameters.items()) {
    const std::string text = value.value("string_value", "");
    const std::string what = "the parameter \"" + name + "\"";
    Outcome failed;
    if (name == "threads") {
      failed = read_count(what, text, &settings->threads);
    } else if (name == "device") {
      settings->device = text;
    } else if (name == "cuda_driver") {
      settings->cuda_driver = text;
    } else if (name == "target") {
      settings->target = text;
    } else if (name == "entry") {
      settings->entry = text;
    } else if (name == "weights") {
      settings->weights = text;
    } else if (name == "trusted_keys") {
      failed = read_keys(what, text, &settings->trusted_keys);
    } else if (name == "copy_weights") {
      failed = read_switch(what, text, &settings->copy_weights);
    } else if (name == "verify_weights") {
      failed = read_switch(what, text, &settings->verify_weights);
    } else if (name == "dynamic_batching") {
      failed = read_switch(what, text, &settings->dynamic_batching);
    } else {
      unknown->push_back(name);
    }
    if (failed) return failed;
  }
  if (!backend.trusted_keys.empty()) {
    if (!settings->trusted_keys.empty()) {
      return refuse(
          "the parameter \"trusted_keys\" is given, but the server was started with trusted-keys of its own, "
          "which hold for every model; drop the parameter");
    }
    settings->trusted_keys = backend.trusted_keys;
  }
  return {};
}

}  // namespace hardtack::triton
