// Lines in, embeddings out: the tokeniser, the bundle, and one session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hardtack/hardtack.hpp>
#include <string>
#include <vector>

#include "wordpiece.h"

class Embedder {
 public:
  /// Empty when all is well, or what is wrong.
  std::string open(const char* bundle, const char* vocabulary);

  /// How many lines embed() takes at once.
  std::size_t most_lines() const { return most_lines_; }
  std::vector<std::int64_t> tokens(const std::string& line) const { return pieces_.encode(line, most_tokens_); }

  /// Adds the embeddings of `lines`, at most most_lines() of them, to `out`; gives what went wrong, or "".
  std::string embed(const std::vector<std::string>& lines, std::vector<std::vector<float>>& out);

 private:
  WordPiece pieces_;
  hardtack::Session session_;
  std::size_t most_lines_ = 1, most_tokens_ = 1;
};

/// An answer: the numbers of an embedding, with blanks between them and the end of the line behind.
std::string text_of(const std::vector<float>& embedding);
