// Which bundles lie in a folder, and how to tell that one changed.
#ifndef HARDTACK_SERVER_CORE_BUNDLES_H
#define HARDTACK_SERVER_CORE_BUNDLES_H

#include <cstdint>
#include <map>
#include <string>

#include "server/core/error.h"
#include "server/core/options.h"

namespace hardtack::serve {

/// One version's bundle. `stamp` changes when the bundle, or a weights file beside it, is replaced or written.
struct Found {
  std::string path;
  std::string stamp;
  std::string problem;  // why it cannot be loaded: two bundles in one folder; "" otherwise
};

using FoundVersions = std::map<std::int64_t, Found>;
using FoundModels = std::map<std::string, FoundVersions>;

/// Everything that lies at `path`: a folder of models, or one file. kInvalid when it cannot be read. `unreadable`, which may be
/// null, gets the models of which a folder is there and cannot be read, and why; what else is found of them is left out.
Outcome<FoundModels> find_bundles(const std::string& path, std::map<std::string, std::string>* unreadable = nullptr);

/// Changes when the file is replaced or written; "gone" for none.
std::string stamp_of_file(const std::string& path);

/// A positive number without leading zeros; 0 when the text is none.
std::int64_t version_number(const std::string& text);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_BUNDLES_H
