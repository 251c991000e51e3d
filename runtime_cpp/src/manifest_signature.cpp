#include "manifest_signature.h"

#include <cstring>

namespace hardtack::rt {
namespace {

void parse_hex(JsonReader* json, uint8_t* out, size_t nbytes) {
  const std::string_view text = json->string_view();
  if (text.size() != 2 * nbytes) return json->fail("a hexadecimal text of the wrong length");
  for (size_t i = 0; i < text.size(); ++i) {
    const char* digits = "0123456789abcdef";
    const char* digit = text[i] == '\0' ? nullptr : std::strchr(digits, text[i]);
    if (digit == nullptr) return json->fail("not lower-case hexadecimal:", text.data());
    const uint8_t value = static_cast<uint8_t>(digit - digits);
    out[i / 2] = static_cast<uint8_t>(out[i / 2] << 4 | value);
  }
}

// The part of a signature that it does not cover: its `value`, or all of one that names no model.
std::string_view uncovered(std::string_view signature) {
  TextPool pool(signature.size());
  JsonReader json(signature, &pool, "manifest.json");
  bool named = false;
  if (json.peek() != '{') return signature;
  json.begin_object();
  while (const char* key = json.next_key()) {
    named = named || std::strcmp(key, "model") == 0;
    const std::string_view value = json.skip();
    if (named && std::strcmp(key, "value") == 0) return value;
  }
  return signature;
}

}  // namespace

bool good_model_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-") ==
             std::string_view::npos;
}

ManifestSignature parse_signature(JsonReader* json) {
  ManifestSignature signature;
  if (json->null()) return signature;
  signature.present = true;
  bool has_key = false, has_value = false, has_algorithm = false, has_version = false;
  json->begin_object();
  while (const char* key = json->next_key()) {  // ascending, so that none comes twice
    if (std::strcmp(key, "algorithm") == 0) {
      has_algorithm = true;
      const char* algorithm = json->string();
      if (std::strcmp(algorithm, "ed25519") != 0) json->fail("unknown signature algorithm", algorithm);
    } else if (std::strcmp(key, "model") == 0) {
      signature.model = json->string();
      if (!good_model_name(signature.model)) json->fail("a signature cannot name the model", signature.model);
    } else if (std::strcmp(key, "public_key") == 0) {
      has_key = true;
      parse_hex(json, signature.public_key, sizeof signature.public_key);
    } else if (std::strcmp(key, "value") == 0) {
      has_value = true;
      parse_hex(json, signature.value, sizeof signature.value);
    } else if (std::strcmp(key, "version") == 0) {
      has_version = true;
      signature.version = json->integer();
      if (signature.version < 0) json->fail("a negative version in the signature");
    } else {
      json->fail("unknown key", key);
    }
  }
  if (!has_algorithm || !has_key || !has_value)
    json->fail("algorithm, public_key or value of the signature is missing");
  if (has_version != (signature.model != nullptr)) json->fail("a signature names model and version, or neither");
  return signature;
}

std::string signed_bytes(std::string_view text) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, "manifest.json");
  json.begin_object();
  while (const char* key = json.next_key()) {
    const std::string_view value = json.skip();
    if (std::strcmp(key, "signature") != 0) continue;
    const std::string_view left_out = uncovered(value);
    const size_t at = static_cast<size_t>(left_out.data() - text.data());
    return std::string(text.substr(0, at)) + "null" + std::string(text.substr(at + left_out.size()));
  }
  return std::string(text);
}

}  // namespace hardtack::rt
