// What the fuzz targets have in common: a repository with the models of make_models.py, and checks that end the
// program.
#ifndef HARDTACK_SERVER_FUZZ_SERVING_H
#define HARDTACK_SERVER_FUZZ_SERVING_H

#include <string_view>

#include "server/core/access.h"
#include "server/core/log.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve::fuzz {

/// Ends the program, loudly, when what must hold does not.
void require(bool holds, const char* what, std::string_view about = {});

/// What people are told is a sentence in UTF-8.
void require_sentence(std::string_view text);

/// A server's inside without connections; one for the whole program.
struct Serving {
  Budget budget{std::uint64_t{4} << 20};  // the largest messages do not fit
  std::unique_ptr<Log> log;
  std::unique_ptr<Access> access;  // for everybody
  std::unique_ptr<Repository> repository;
  SharedMemory shared;  // with a region "in" of 256 bytes
};
Serving& serving();

/// Reads every byte of an input, so that the sanitizers see memory that is not there.
void touch(const Input& input);

}  // namespace hardtack::serve::fuzz

#endif  // HARDTACK_SERVER_FUZZ_SERVING_H
