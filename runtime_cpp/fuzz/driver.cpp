// Runs a fuzz target without libFuzzer: each file in the arguments as it is, then --runs mutations of them all, or as many
// as --seconds allow.
// A mutation flips, inserts, removes or repeats bytes, or splices two files; the generator is seeded, so runs repeat.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t nbytes);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(const std::vector<std::string>& corpus) {
    std::string bytes = corpus[below(corpus.size())];
    for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) change(&bytes, corpus);
    return bytes;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  void change(std::string* bytes, const std::vector<std::string>& corpus) {
    static const char* const kTokens[] = {
        "-1", "0", "9223372036854775807", "4294967296", "null", "[]", "{}", "\"\"", ",", "\\u0000"};
    const size_t at = below(bytes->size());
    switch (below(6)) {
      case 0: (*bytes)[at] = static_cast<char>(random_()); break;
      case 1: (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << below(8))); break;
      case 2: bytes->erase(at, 1 + below(16)); break;
      case 3: bytes->insert(at, kTokens[below(sizeof kTokens / sizeof kTokens[0])]); break;
      case 4: bytes->insert(at, bytes->substr(below(bytes->size()), 1 + below(64))); break;
      default: {
        const std::string& other = corpus[below(corpus.size())];
        if (!other.empty()) *bytes = bytes->substr(0, at) + other.substr(below(other.size()));
      }
    }
  }

  std::mt19937_64 random_;
};

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  long runs = 0, seconds = 0;
  unsigned long seed = 1;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--runs=", 7) == 0)
      runs = std::strtol(argv[i] + 7, nullptr, 10);
    else if (std::strncmp(argv[i], "--seconds=", 10) == 0)
      seconds = std::strtol(argv[i] + 10, nullptr, 10);
    else if (std::strncmp(argv[i], "--seed=", 7) == 0)
      seed = std::strtoul(argv[i] + 7, nullptr, 10);
    else
      corpus.push_back(read_file(argv[i]));
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: %s [--runs=N] [--seconds=N] [--seed=N] FILE...\n", argv[0]);
    return 2;
  }
  for (const std::string& bytes : corpus) run(bytes);
  Mutator mutator(seed);
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  long done = 0;
  while (done < runs || (seconds > 0 && Clock::now() < until)) {
    run(mutator.mutate(corpus));
    ++done;
  }
  std::printf("%zu files and %ld mutations: no fault\n", corpus.size(), done);
  return 0;
}
