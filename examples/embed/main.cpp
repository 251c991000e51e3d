// embed MODEL.pkg VOCAB.txt [--neighbours K] [--tokens]: sentence embeddings of the lines of standard input.
//
// A line in, a line out: the numbers of its embedding. Lines that have come while others were computed are embedded
// together, padded to the longest of them: a pipe gets batches, a person gets answers at once. With --neighbours K: when
// the input ends, for each line the K nearest of the others with their cosines. With --tokens: what the model is given.
//
// The model takes token numbers and a mask, i64 [n, length] both, and gives f32 [n, width] of length 1.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hardtack/hardtack.hpp>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "wordpiece.h"

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "embed: %s\n", what.c_str());
  return 1;
}

class Embedder {
 public:
  // Empty when all is well, or what is wrong.
  std::string open(const char* bundle, const char* vocabulary) {
    if (!pieces_.read(vocabulary)) return std::string(vocabulary) + " is no vocabulary with [UNK], [CLS] and [SEP]";
    auto model = hardtack::Model::load(bundle);
    if (!model.ok()) return model.status().message();
    // What the entry point takes is asked of the bundle: how many lines at once, and how many tokens a line.
    const ht_tensor_info *ids = model->input(0, 0), *mask = model->input(0, 1), *out = model->output(0, 0);
    if (ids == nullptr || mask == nullptr || out == nullptr || ids->ndim != 2 || out->ndim != 2) {
      return std::string(bundle) + " does not take ids [n, length] and a mask";
    }
    most_lines_ = static_cast<std::size_t>(std::min<std::int64_t>(ids->shape[0].hi, 256));
    most_tokens_ = static_cast<std::size_t>(std::min<std::int64_t>(ids->shape[1].hi, 512));
    auto session = model->new_session();
    if (!session.ok()) return session.status().message();
    session_ = std::move(*session);
    return "";
  }

  std::size_t most_lines() const { return most_lines_; }
  std::vector<std::int64_t> tokens(const std::string& line) const { return pieces_.encode(line, most_tokens_); }

  // Adds the embeddings of `lines`, at most most_lines() of them, to `out`; gives what went wrong, or "".
  std::string embed(const std::vector<std::string>& lines, std::vector<std::vector<float>>& out) {
    std::vector<std::vector<std::int64_t>> rows;
    std::size_t length = 0;
    for (const std::string& line : lines) {
      rows.push_back(tokens(line));
      length = std::max(length, rows.back().size());
    }
    std::vector<std::int64_t> ids(rows.size() * length, 0), mask(rows.size() * length, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::copy(rows[i].begin(), rows[i].end(), ids.begin() + static_cast<std::ptrdiff_t>(i * length));
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(i * length), rows[i].size(), 1);
    }
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length)};
    auto results = session_.run({hardtack::Tensor::of(ids.data(), shape), hardtack::Tensor::of(mask.data(), shape)});
    if (!results.ok()) return results.status().message();
    const hardtack::Tensor& embeddings = results->at(0);  // valid until the next run: copied out
    const auto width = static_cast<std::size_t>(embeddings.shape()[1]);
    const auto* data = embeddings.data<const float>();
    for (std::size_t i = 0; i < rows.size(); ++i) out.emplace_back(data + i * width, data + (i + 1) * width);
    return "";
  }

 private:
  WordPiece pieces_;
  hardtack::Session session_;
  std::size_t most_lines_ = 1, most_tokens_ = 1;
};

// The lines that are there: one at least, more while they need no waiting. Empty at the end of the input.
std::vector<std::string> read_lines(std::size_t most) {
  std::vector<std::string> lines;
  for (std::string line; lines.size() < most && std::getline(std::cin, line);) {
    lines.push_back(line);
    if (std::cin.rdbuf()->in_avail() <= 0) break;
  }
  return lines;
}

void print_numbers(const std::vector<float>& embedding) {
  for (std::size_t i = 0; i < embedding.size(); ++i) {
    std::printf("%s%.9g", i == 0 ? "" : " ", static_cast<double>(embedding[i]));
  }
  std::printf("\n");
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
  if (argc != 3 && !tokens && !neighbours) {
    std::fprintf(stderr, "usage: embed MODEL.pkg VOCAB.txt [--neighbours K | --tokens]\n");
    return 2;
  }
  std::ios::sync_with_stdio(false);  // so that in_avail() tells what has come
  Embedder embedder;
  if (const std::string wrong = embedder.open(argv[1], argv[2]); !wrong.empty()) return fail(wrong);

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
      for (const auto& embedding : embeddings) print_numbers(embedding);
      embeddings.clear();
    }
    std::fflush(stdout);
  }
  if (neighbours) print_neighbours(all_lines, embeddings, static_cast<std::size_t>(std::max(1, std::atoi(argv[4]))));
  return 0;
}
