#include "settings.h"

#include <algorithm>
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

constexpr const char* kBackendNames[] = {"threads", "trusted-keys", "default-max-batch-size"};
// What Triton tells every backend.
constexpr const char* kTritonsNames[] = {"auto-complete-config", "backend-directory", "min-compute-capability"};
constexpr const char* kModelNames[] = {"threads", "device",       "cuda_driver",  "target",         "entry",
                                       "weights", "trusted_keys", "copy_weights", "verify_weights", "dynamic_batching"};

template <std::size_t N>
bool is_among(const char* const (&names)[N], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Letters alone, without the last s: "trusted-keys", "trusted_key" and "TrustedKeys" are the same.
std::string bare(const std::string& name) {
  std::string letters;
  for (const char c : name) {
    if (c >= 'a' && c <= 'z') letters += c;
    if (c >= 'A' && c <= 'Z') letters += static_cast<char>(c - 'A' + 'a');
  }
  if (!letters.empty() && letters.back() == 's') letters.pop_back();
  return letters;
}

// A name that is almost one of Hardtack's must not be ignored: it may have been said for safety.
template <std::size_t N>
Outcome take_unknown(const char* const (&names)[N], const std::string& what, const std::string& name,
                     std::vector<std::string>* unknown) {
  for (const char* known : names) {
    if (bare(known) == bare(name)) return refuse(what + " is none of Hardtack's; did you mean \"" + known + "\"?");
  }
  unknown->push_back(name);
  return {};
}

}  // namespace

Outcome read_backend_settings(const Json& config, BackendSettings* settings, std::vector<std::string>* unknown) {
  const Json cmdline = config.value("cmdline", Json::object());
  for (const auto& [name, value] : cmdline.items()) {
    if (is_among(kBackendNames, name) || is_among(kTritonsNames, name)) continue;
    const std::string what = "--backend-config: the setting \"" + name + "\"";
    if (Outcome failed = take_unknown(kBackendNames, what, name, unknown)) return failed;
  }
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
      failed = take_unknown(kModelNames, what, name, unknown);
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
