// embed MODEL.pkg VOCAB.txt [--listen PORT | --neighbours K | --tokens]: sentence embeddings of lines of text.
//
// A line of standard input in, a line out: the numbers of its embedding. Lines that have come while others were computed are
// embedded together, padded to the longest of them: a pipe gets batches, a person gets answers at once. With --listen the
// same for many clients over TCP, whose lines share batches. With --neighbours K: when the input ends, for each line the K
// nearest of the others with their cosines. With --tokens: what the model is given.
//
// The model takes token numbers and a mask, i64 [n, length] both, and gives f32 [n, width] of length 1.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "embedder.h"
#include "service.h"

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "embed: %s\n", what.c_str());
  return 1;
}

// The lines that are there: one at least, more while they need no waiting. Empty at the end of the input.
std::vector<std::string> read_lines(std::size_t most) {
  std::vector<std::string> lines;
  for (std::string line; lines.size() < most && std::getline(std::cin, line);) {
    lines.push_back(line);
    if (std::cin.rdbuf()->in_avail() <= 0) break;
  }
  return lines;
}

void print_tokens(const std::vector<std::int64_t>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::printf("%s%lld", i == 0 ? "" : " ", static_cast<long long>(tokens[i]));
  std::printf("\n");
}

void print_neighbours(const std::vector<std::string>& lines, const std::vector<std::vector<float>>& all,
                      std::size_t count) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::vector<float> cosines;
    for (const auto& other : all)
      cosines.push_back(std::inner_product(other.begin(), other.end(), all[i].begin(), 0.F));
    std::vector<std::size_t> order;
    for (std::size_t j = 0; j < lines.size(); ++j) {
      if (j != i) order.push_back(j);
    }
    const std::size_t shown = std::min(count, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                      [&](std::size_t a, std::size_t b) { return cosines[a] > cosines[b]; });
    std::printf("%s\n", lines[i].c_str());
    for (std::size_t k = 0; k < shown; ++k) {
      std::printf("  %.4f  %s\n", static_cast<double>(cosines[order[k]]), lines[order[k]].c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool tokens = argc == 4 && std::strcmp(argv[3], "--tokens") == 0;
  const bool neighbours = argc == 5 && std::strcmp(argv[3], "--neighbours") == 0;
  const bool listens = argc == 5 && std::strcmp(argv[3], "--listen") == 0;
  const int number = argc == 5 ? std::atoi(argv[4]) : 0;
  if ((argc != 3 && !tokens && !neighbours && !listens) || number < 0 || (listens && number > 65535)) {
    std::fprintf(stderr, "usage: embed MODEL.pkg VOCAB.txt [--listen PORT | --neighbours K | --tokens]\n");
    return 2;
  }
  std::ios::sync_with_stdio(false);  // so that in_avail() tells what has come
  Embedder embedder;
  if (const std::string wrong = embedder.open(argv[1], argv[2]); !wrong.empty()) return fail(wrong);

  if (listens) return fail(serve(embedder, static_cast<std::uint16_t>(number)));
  std::vector<std::string> all_lines;
  std::vector<std::vector<float>> embeddings;
  while (true) {
    const std::vector<std::string> lines = read_lines(embedder.most_lines());
    if (lines.empty()) break;
    if (tokens) {
      for (const std::string& line : lines) print_tokens(embedder.tokens(line));
    } else if (const std::string wrong = embedder.embed(lines, embeddings); !wrong.empty()) {
      return fail(wrong);
    } else if (neighbours) {
      all_lines.insert(all_lines.end(), lines.begin(), lines.end());
    } else {
      for (const auto& embedding : embeddings) std::fputs(text_of(embedding).c_str(), stdout);
      embeddings.clear();
    }
    std::fflush(stdout);
  }
  if (neighbours) print_neighbours(all_lines, embeddings, static_cast<std::size_t>(std::max(1, number)));
  return 0;
}
