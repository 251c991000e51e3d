// The manifest's `signature` (docs/package.md, "Signature").
#pragma once

#include "json_reader.h"
#include "manifest.h"

namespace hardtack::rt {

ManifestSignature parse_signature(JsonReader* json);

}  // namespace hardtack::rt
