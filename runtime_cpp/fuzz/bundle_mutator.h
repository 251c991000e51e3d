// Bundles that are changed inside and sound outside: sizes, checksums and hashes are those of the changed members, so that
// what comes behind them is reached.
#pragma once

#include <random>
#include <string>

namespace hardtack::fuzz {

/// The bundle with one member changed; a manifest, a plan or a weights header as JSON, others byte by byte. `bytes` as they
/// are when they are no bundle.
std::string mutate_bundle(const std::string& bytes, std::mt19937_64& random);

}  // namespace hardtack::fuzz
