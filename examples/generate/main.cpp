// generate MODEL.pkg WORDS.txt [--count N] [--top K] [--temperature T] [--seed S]: continues the lines of standard input.
//
// The bundle has two entry points that share weights and states: `prefill` takes a prompt, i64 [1, length], `decode` one
// word, i64 [1, 1]; both give the logits of the next word, f32 [words]. The cache of keys and values is a state: it stays in
// the session between runs, and no run copies it. Without --top the likeliest word follows; with it one of the K likeliest,
// drawn with their probabilities at temperature T. WORDS.txt has a word a line; signs are words.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <hardtack/hardtack.hpp>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Options {
  std::size_t count = 40, top = 1;
  float temperature = 1;
  std::uint64_t seed = 0;
};

int fail(const std::string& what) {
  std::fprintf(stderr, "generate: %s\n", what.c_str());
  return 1;
}

class Words {
 public:
  bool read(const char* path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      numbers_.emplace(line, static_cast<std::int64_t>(texts_.size()));
      texts_.push_back(line);
    }
    return !texts_.empty();
  }
  std::size_t size() const { return texts_.size(); }
  const std::string& text(std::int64_t number) const { return texts_[static_cast<std::size_t>(number)]; }

  // The numbers of a line's words; false with the word that is not known.
  bool numbers(const std::string& line, std::vector<std::int64_t>* out, std::string* unknown) const {
    for (std::size_t i = 0; i < line.size();) {
      std::size_t to = i;
      while (to < line.size() && in_word(line[to])) ++to;
      if (to == i) ++to;  // a sign
      const std::string word = line.substr(i, to - i);
      i = to;
      if (word == " " || word == "\t" || word == "\r") continue;
      const auto found = numbers_.find(word);
      if (found == numbers_.end()) {
        *unknown = word;
        return false;
      }
      out->push_back(found->second);
    }
    return true;
  }

 private:
  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::int64_t> numbers_;
};

// One of the `top` likeliest, with its probability among them.
class Sampler {
 public:
  explicit Sampler(const Options& options) : options_(options), random_(options.seed) {}

  std::int64_t pick(const float* logits, std::size_t count) {
    if (options_.top <= 1) return std::max_element(logits, logits + count) - logits;
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0);
    const std::size_t top = std::min(options_.top, count);
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(top), order_.end(),
                      [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    weights_.clear();
    for (std::size_t i = 0; i < top; ++i) {
      weights_.push_back(std::exp((logits[order_[i]] - logits[order_[0]]) / options_.temperature));
    }
    std::discrete_distribution<std::size_t> draw(weights_.begin(), weights_.end());
    return static_cast<std::int64_t>(order_[draw(random_)]);
  }

 private:
  Options options_;
  std::mt19937_64 random_;
  std::vector<std::size_t> order_;
  std::vector<float> weights_;
};

// The prompt and what follows it, up to `limit` words in all; gives what went wrong, or "".
std::string continue_text(hardtack::Session& session, Sampler& sampler, std::vector<std::int64_t>& ids,
                          std::size_t limit) {
  const auto prompt = hardtack::Tensor::of(ids.data(), {1, static_cast<std::int64_t>(ids.size())});
  auto logits = session.run({prompt}, "prefill");
  while (true) {
    if (!logits.ok()) return logits.status().message();
    const hardtack::Tensor& out = logits->at(0);
    ids.push_back(sampler.pick(out.data<const float>(), static_cast<std::size_t>(out.shape()[0])));
    if (ids.size() >= limit) return "";
    logits = session.run({hardtack::Tensor::of(&ids.back(), {1, 1})}, "decode");
  }
}

std::string joined(const Words& words, const std::vector<std::int64_t>& ids) {
  std::string text;
  for (const std::int64_t id : ids) {
    const std::string& word = words.text(id);
    if (!text.empty() && std::strchr(".,;:)\"'", word[0]) == nullptr) text += ' ';
    text += word;
  }
  return text;
}

bool read_options(int argc, char** argv, Options* options) {
  if (argc % 2 == 0) return false;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    char* end = nullptr;
    const double value = std::strtod(argv[i + 1], &end);
    if (*end != '\0' || !(value >= 0 && value <= 1e15)) return false;
    if (name == "--count" && value >= 1) {
      options->count = static_cast<std::size_t>(value);
    } else if (name == "--top" && value >= 1) {
      options->top = static_cast<std::size_t>(value);
    } else if (name == "--temperature" && value > 0) {
      options->temperature = static_cast<float>(value);
    } else if (name == "--seed") {
      options->seed = static_cast<std::uint64_t>(value);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3 || !read_options(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: generate MODEL.pkg WORDS.txt [--count N] [--top K] [--temperature T] [--seed S] < prompts\n");
    return 2;
  }
  Words words;
  if (!words.read(argv[2])) return fail(std::string("there are no words in ") + argv[2]);
  auto model = hardtack::Model::load(argv[1]);
  if (!model.ok()) return fail(model.status().message());
  const std::size_t entry = ht_model_find_entry(model->get(), "prefill");
  const ht_tensor_info *ids_info = model->input(entry, 0), *logits_info = model->output(entry, 0);
  if (ids_info == nullptr || logits_info == nullptr || ids_info->ndim != 2 || logits_info->ndim != 1 ||
      logits_info->shape[0].hi != static_cast<std::int64_t>(words.size())) {
    return fail(std::string(argv[1]) + " has no entry point `prefill` for the " + std::to_string(words.size()) +
                " words of " + argv[2]);
  }
  const auto context = static_cast<std::size_t>(ids_info->shape[1].hi);  // words that the cache holds
  auto session = model->new_session();
  if (!session.ok()) return fail(session.status().message());
  Sampler sampler(options);

  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::int64_t> ids;
    std::string unknown;
    if (!words.numbers(line, &ids, &unknown)) return fail("the model does not know the word " + unknown);
    if (ids.empty() || ids.size() >= context) {
      return fail("a prompt has " + std::to_string(ids.size()) + " words; it may have 1 to " +
                  std::to_string(context - 1));
    }
    const std::size_t limit = std::min(ids.size() + options.count, context);
    ids.reserve(limit);  // decode reads the last one in place
    if (const std::string wrong = continue_text(*session, sampler, ids, limit); !wrong.empty()) return fail(wrong);
    std::printf("%s\n", joined(words, ids).c_str());
  }
  return 0;
}
