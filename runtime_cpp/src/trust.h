// Whose signatures a load accepts, and how old the bundles may be that they signed (docs/package.md, "Signature").
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "manifest.h"
#include "status.h"

namespace hardtack::rt {

struct Trust {
  bool required = false;
  std::vector<std::array<uint8_t, 32>> keys;
  std::map<std::string, int64_t, std::less<>> lowest_versions;  // by model
  std::string file;                                             // where the lowest versions stand
  const char* model = nullptr;                                  // what the signature must name; null: any, or none
};

/// What the options ask for; reads their file of keys. HT_IO, HT_INVALID_ARGUMENT.
Status read_trust(const ht_load_options& options, Trust* trust);

/// Adds what a file of trusted keys holds. HT_IO, HT_INVALID_ARGUMENT with the line.
Status read_trusted_keys(const char* path, Trust* trust);

/// HT_UNTRUSTED unless the manifest carries a good signature by one of the keys, of a model and a version that are
/// asked for. `text` is the manifest's own.
Status check_signature(const Manifest& manifest, std::string_view text, const Trust& trust);

}  // namespace hardtack::rt
