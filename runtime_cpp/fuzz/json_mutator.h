// JSON texts that stay JSON: what bytes changed at random hardly ever reach, the proof behind the reader.
#pragma once

#include <random>
#include <string>

namespace hardtack::fuzz {

/// `text` with one thing in it changed as a wrong writer might: a number, a text, an element of a list, or a value put where
/// another of the same name stands. In the canonical form of manifests and plans. `text` as it is when it is no JSON.
std::string mutate_json(const std::string& text, std::mt19937_64& random);

}  // namespace hardtack::fuzz
