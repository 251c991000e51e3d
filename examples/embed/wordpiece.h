// WordPiece as uncased BERT models use it: text to the numbers of a vocabulary.
#ifndef EMBED_WORDPIECE_H
#define EMBED_WORDPIECE_H

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// Reads UTF-8. Capitals become small and accents go in Latin up to U+017F, Greek and Cyrillic; combining accents go
// everywhere; Hangul is taken apart into letters. Other scripts are looked up as they are.
class WordPiece {
 public:
  // A word a line, numbered from 0. False when the file cannot be read or lacks [UNK], [CLS] or [SEP].
  bool read(const char* path);

  // [CLS], the text's pieces, [SEP]: at most `longest` numbers; pieces beyond are left out.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t longest) const;

 private:
  void add_word(const std::string& word, std::vector<std::int64_t>& out) const;

  std::unordered_map<std::string, std::int64_t> numbers_;
  std::int64_t unknown_ = 0, begin_ = 0, end_ = 0;
};

#endif
