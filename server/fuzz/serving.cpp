#include "server/fuzz/serving.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "server/core/protocol.h"
#include "server/core/text.h"

namespace hardtack::serve::fuzz {

namespace {

constexpr std::uint64_t kRegionNbytes = 256;

void add_region(SharedMemory& shared) {
  const std::string key = "/hardtack_fuzz_" + std::to_string(::getpid());
  const int file = ::shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  require(file >= 0 && ::ftruncate(file, kRegionNbytes) == 0, "a shared memory object can be made");
  const Failure failed = shared.add({"", "in", key, 0, kRegionNbytes});
  ::close(file);
  ::shm_unlink(key.c_str());
  require(!failed, "the region can be registered");
}

Serving* start() {
  auto* made = new Serving;
  made->log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kError));
  made->access = std::move(*Access::open("", *made->log));
  RepositoryOptions options;
  options.path = HARDTACK_FUZZ_MODELS;
  options.poll = std::chrono::milliseconds(0);
  options.threads = 1;
  options.allow_control = false;  // what one input unloads the next would miss
  options.defaults.sessions = 1;
  options.defaults.max_sequences = 4;
  options.models["m"] = options.defaults;
  options.models["m"].max_batch = 8;
  auto repository = Repository::open(options, made->budget, *made->log);
  require(repository.ok(), "the repository opens");
  made->repository = std::move(*repository);
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (!made->repository->ready() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  require(made->repository->ready(), "the models load", made->repository->not_ready_reason());
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
