// Runs a fuzz target without libFuzzer: each file in the arguments as it is, then --runs mutations of them all, or as many
// as --seconds allow.
// A mutation flips, inserts, removes or repeats bytes, or splices two files; where a target has a mutator of its own, every
// other one comes from it. The generator is seeded, so runs repeat.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t nbytes);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t nbytes, size_t most_nbytes,
                                                                unsigned seed);

namespace {

constexpr size_t kMostGrowth = 1U << 16;

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(const std::vector<std::string>& corpus) {
    std::string bytes = corpus[below(corpus.size())];
    if (LLVMFuzzerCustomMutator != nullptr && below(2) == 0) return customized(std::move(bytes));
    for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) change(&bytes, corpus);
    return bytes;
  }

  void mutate(std::string* bytes) {
    if (!bytes->empty()) change(bytes, {*bytes});
  }

 private:
  std::string customized(std::string bytes) {
    const size_t nbytes = bytes.size();
    bytes.resize(nbytes + kMostGrowth);
    auto* data = reinterpret_cast<uint8_t*>(bytes.data());
    bytes.resize(LLVMFuzzerCustomMutator(data, nbytes, bytes.size(), static_cast<unsigned>(random_())));
    return bytes;
  }

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

Mutator* mutator = nullptr;

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t nbytes, size_t most_nbytes) {
  std::string bytes(reinterpret_cast<const char*>(data), nbytes);
  mutator->mutate(&bytes);
  bytes.resize(std::min(bytes.size(), most_nbytes));
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

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
  Mutator own(seed);
  mutator = &own;
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  long done = 0;
  while (done < runs || (seconds > 0 && Clock::now() < until)) {
    run(own.mutate(corpus));
    ++done;
  }
  std::printf("%zu files and %ld mutations: no fault\n", corpus.size(), done);
  return 0;
}
