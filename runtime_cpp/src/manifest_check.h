// What the rows of a manifest must say of each other: names are unique, what is named exists, sizes agree.
#pragma once

#include "manifest.h"

namespace hardtack::rt {

/// Fills the manifest's indices by name and checks it.
Status check_manifest(Manifest* m);

}  // namespace hardtack::rt
