// The commands of hardtack-rt. Each returns the exit status: 0 good, 1 bad artefact or result, 2 wrong use.
#pragma once

#include "args.h"

namespace hardtack::tools {

constexpr int kGood = 0, kBad = 1, kWrongUse = 2;

int inspect(const Args& args);
int verify(const Args& args);
int run(const Args& args);
int bench(const Args& args);

/// Prints to standard error, in red on a terminal.
int bad(const std::string& message);
int wrong_use(const std::string& message);

}  // namespace hardtack::tools
