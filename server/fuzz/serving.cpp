#include "server/fuzz/serving.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "server/core/protocol.h"
#include "server/core/text.h"

namespace hardtack::serve::fuzz {

namespace {

constexpr std::uint64_t kRegionNbytes = 256;

void add_region(SharedMemory& shared) {
  const std::string key = "/hardtack_fuzz_" + std::to_string(::getpid());
  const int file = ::shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  require(file >= 0 && ::ftruncate(file, kRegionNbytes) == 0, "a shared memory object can be made");
  const Failure failed = shared.add({"in", key, 0, kRegionNbytes});
  ::close(file);
  ::shm_unlink(key.c_str());
  require(!failed, "the region can be registered");
}

Serving* start() {
  auto* made = new Serving;
  made->log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  made->access = std::move(*Access::open("", *made->log));
  RepositoryOptions options;
  options.path = (std::filesystem::temp_directory_path() / ("hardtack_fuzz_" + std::to_string(::getpid()))).string();
  options.poll = std::chrono::milliseconds(0);
  options.threads = 1;
  std::filesystem::create_directory(options.path);
  auto repository = Repository::open(options, made->budget, *made->log);
  std::filesystem::remove(options.path);
  require(repository.ok(), "an empty repository opens");
  made->repository = std::move(*repository);
  add_region(made->shared);
  return made;
}

}  // namespace

void require(bool holds, const char* what, std::string_view about) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s: %s\n", what, std::string(about).c_str());
  std::abort();
}

void require_sentence(std::string_view text) {
  require(text.size() > 10, "an error has a sentence", text);
  require(text.size() < 4096, "a sentence has an end", text);
  require(is_utf8(text), "a sentence is UTF-8", text);
}

Serving& serving() {
  static Serving* const only = start();
  return *only;
}

void touch(const Input& input) {
  require(input.nbytes == 0 || aligned(input.data, input.dtype), "inputs are aligned", input.name);
  volatile unsigned sum = 0;
  for (std::size_t i = 0; i < input.nbytes; ++i) sum = sum + static_cast<const unsigned char*>(input.data)[i];
}

}  // namespace hardtack::serve::fuzz
