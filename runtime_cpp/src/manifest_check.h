// What the rows of a manifest must say of each other: names are unique, what is named exists, sizes agree.
#pragma once

#include <optional>

#include "manifest.h"

namespace hardtack::rt {

/// Fills the manifest's indices by name and checks it.
Status check_manifest(Manifest* m);

/// The error for what has a dtype that its bundle's format does not have.
Status newer_dtype(const char* name, DType dtype, int64_t format);

/// Sizes or strides as far as they are known.
using KnownDims = std::vector<std::optional<int64_t>>;
/// Refuses an output that is not row-major, as far as numbers are known: whoever takes it takes numel elements one after
/// the other, whatever its strides say.
Status check_row_major(const char* output, const KnownDims& shape, const KnownDims& strides);

}  // namespace hardtack::rt
