#include "trust.h"

#include <algorithm>
#include <cstring>
#include <locale>
#include <memory>
#include <sstream>

#include "ed25519.h"
#include "source.h"

namespace hardtack::rt {
namespace {

constexpr uint64_t kMaxNbytes = 1 << 20;

bool parse_key(const std::string& text, std::array<uint8_t, 32>* key) {
  if (text.size() != 64) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    (*key)[i / 2] = static_cast<uint8_t>((*key)[i / 2] << 4 | digit);
  }
  return true;
}

// A whole number as the manifest spells it: digits alone, no leading zero.
bool parse_version(const std::string& text, int64_t* version) {
  if (text.empty() || (text[0] == '0' && text.size() > 1)) return false;
  *version = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(*version, int64_t{10}, version) ||
        __builtin_add_overflow(*version, int64_t{c - '0'}, version)) {
      return false;
    }
  }
  return true;
}

Status parse_line(const std::string& line, Trust* trust) {
  std::istringstream words(line.substr(0, line.find('#')));
  words.imbue(std::locale::classic());  // white space is what ASCII has, whatever the host's language
  std::string first, second, third;
  words >> first >> second >> third;
  if (first.empty()) return Status();
  std::array<uint8_t, 32> key = {};
  int64_t version = 0;
  if (second.empty() && parse_key(first, &key)) return trust->keys.push_back(key), Status();
  if (!third.empty() || !good_model_name(first) || !parse_version(second, &version)) {
    return error(HT_INVALID_ARGUMENT,
                 "expected a public key of 64 hexadecimal digits, or the name of a model and its lowest version");
  }
  if (trust->lowest_versions.emplace(first, version).second) return Status();
  return error(HT_INVALID_ARGUMENT, "the model %s stands here a second time", first.c_str());
}

// What the signature says of itself against what is asked for.
Status check_release(const ManifestSignature& signature, const Trust& trust) {
  const bool named = signature.model != nullptr;
  if (trust.model != nullptr && (!named || std::strcmp(trust.model, signature.model) != 0)) {
    return error(HT_UNTRUSTED, "the bundle is signed as %s, not as the model \"%s\" that is asked for",
                 named ? ("\"" + std::string(signature.model) + "\"").c_str() : "no model", trust.model);
  }
  if (trust.lowest_versions.empty()) return Status();
  if (!named) {
    return error(HT_UNTRUSTED,
                 "the bundle's signature names no model and no version, and %s has lowest versions; sign it with "
                 "--model and --model-version",
                 trust.file.c_str());
  }
  const auto lowest = trust.lowest_versions.find(std::string_view(signature.model));
  if (lowest == trust.lowest_versions.end() || signature.version >= lowest->second) return Status();
  return error(HT_UNTRUSTED, "the bundle is signed as version %lld of %s; %s asks for %lld or later",
               static_cast<long long>(signature.version), signature.model, trust.file.c_str(),
               static_cast<long long>(lowest->second));
}

}  // namespace

Status read_trusted_keys(const char* path, Trust* trust) {
  std::unique_ptr<Source> source;
  HT_RETURN_IF_ERROR(open_file(path, &source));
  if (source->nbytes() > kMaxNbytes) {
    return error(HT_INVALID_ARGUMENT, "%s has %llu bytes; a file of trusted keys has at most %llu", path,
                 static_cast<unsigned long long>(source->nbytes()), static_cast<unsigned long long>(kMaxNbytes));
  }
  std::string text(source->nbytes(), '\0');
  HT_RETURN_IF_ERROR(source->read(0, text.size(), text.data()));
  trust->file = path;
  const size_t before = trust->keys.size();
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    HT_RETURN_IF_ERROR(in_context(parse_line(line, trust), std::string(path) + ": line " + std::to_string(number)));
  }
  if (trust->keys.size() > before) return Status();
  return error(HT_INVALID_ARGUMENT, "%s holds no public key; a line of 64 hexadecimal digits is one", path);
}

Status read_trust(const ht_load_options& options, Trust* trust) {
  trust->required = options.require_trusted_signature != 0 || options.trusted_keys_path != nullptr;
  if (!trust->required) {
    if (options.signed_model == nullptr) return Status();
    return error(HT_INVALID_ARGUMENT, "ht_load_options.signed_model is given, but no keys to trust");
  }
  trust->model = options.signed_model;
  if (options.require_trusted_signature != 0) {
    for (size_t i = 0; i < options.num_trusted_keys; ++i) {
      trust->keys.emplace_back();
      std::memcpy(trust->keys.back().data(), options.trusted_keys[i], 32);
    }
  }
  return options.trusted_keys_path == nullptr ? Status() : read_trusted_keys(options.trusted_keys_path, trust);
}

Status check_signature(const Manifest& manifest, std::string_view text, const Trust& trust) {
  const ManifestSignature& signature = manifest.signature;
  if (!signature.present) return error(HT_UNTRUSTED, "a trusted signature is required, but the bundle is not signed");
  const bool known = std::any_of(trust.keys.begin(), trust.keys.end(), [&](const std::array<uint8_t, 32>& key) {
    return std::memcmp(key.data(), signature.public_key, key.size()) == 0;
  });
  if (!known) {
    return error(HT_UNTRUSTED, "the bundle is signed by a key that is not among the %zu trusted ones",
                 trust.keys.size());
  }
  const std::string covered = signed_bytes(text);
  if (!ed25519_verify(signature.value, signature.public_key, covered.data(), covered.size())) {
    return error(HT_UNTRUSTED, "the bundle's signature is not the trusted key's over this manifest");
  }
  return check_release(signature, trust);
}

}  // namespace hardtack::rt
