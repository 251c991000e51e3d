#include "wordpiece.h"

#include <algorithm>
#include <fstream>

namespace {

constexpr char32_t kBroken = 0xFFFD;
constexpr std::size_t kLongestWord = 100;  // in characters; longer words are unknown

// The next character of UTF-8 text, which moves on; kBroken where it is none.
char32_t next_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > text.size()) {
    text.remove_prefix(1);
    return kBroken;
  }
  auto c = static_cast<char32_t>(length == 1 ? first : first & (0x7F >> length));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >> 6 != 2) {
      text.remove_prefix(i);
      return kBroken;
    }
    c = c << 6 | (byte & 0x3F);
  }
  text.remove_prefix(length);
  return c;
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr unsigned kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kFirst[more] | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
}

// U+00C0 to U+017F in small letters without accents; a blank where the character is one of its own.
constexpr char kPlain[] =
    "aaaaaa ceeeeiiii nooooo  uuuuy  aaaaaa ceeeeiiii nooooo  uuuuy y"
    "aaaaaaccccccccdd  eeeeeeeeeegggggggghh  iiiiiiiii   jjkk llllll"
    "    nnnnnn   oooooo  rrrrrrsssssssstttt  uuuuuuuuuuuuwwyyyzzzzzz ";

char32_t small_plain(char32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  if (c >= 0xC0 && c <= 0x17F) {
    if (const char plain = kPlain[c - 0xC0]; plain != ' ') return static_cast<char32_t>(plain);
    if (c <= 0xDE && c != 0xD7) return c + 32;
    const bool capitals_are_odd = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    return c >= 0x100 && c != 0x138 && c < 0x178 + 7 && c % 2 == (capitals_are_odd ? 1 : 0) ? c + 1 : c;
  }
  if ((c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F)) c += 32;
  if (c >= 0x400 && c <= 0x40F) c += 80;
  // accented letters of Greek and Cyrillic, and what is left of them
  constexpr char32_t kAccented[] = U"άέήίόύώϊϋΐΰΆΈΉΊΌΎΏйѐёѓїќѝў";
  constexpr char32_t kLeft[] = U"αεηιουωιυιυαεηιουωиеегікиу";
  const char32_t* found = std::find(std::begin(kAccented), std::end(kAccented) - 1, c);
  return found == std::end(kAccented) - 1 ? c : kLeft[found - std::begin(kAccented)];
}

bool is_combining(char32_t c) { return c >= 0x300 && c <= 0x36F; }

bool is_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_dropped(char32_t c) {
  return c == kBroken || c < 32 || (c >= 0x7F && c < 0xA0) || c == 0xAD || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x202A && c <= 0x202E) || c == 0xFEFF;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 32 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  constexpr char32_t kLatin[] = {0xA1, 0xA7, 0xAB, 0xB6, 0xB7, 0xBB, 0xBF};
  if (std::find(std::begin(kLatin), std::end(kLatin), c) != std::end(kLatin)) return true;
  if (c >= 0x2010 && c <= 0x205E) return c != 0x2044 && c != 0x2052 && !(c >= 0x2028 && c <= 0x202F);
  return (c >= 0x3001 && c <= 0x3003) || (c >= 0x3008 && c <= 0x3011) || (c >= 0x3014 && c <= 0x301F) ||
         (c >= 0xFF01 && c <= 0xFF0F && c != 0xFF04 && c != 0xFF0B) || c == 0xFF1A || c == 0xFF1B || c == 0xFF1F;
}

bool is_hangul(char32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

// A syllable of Hangul as its letters.
void append_hangul(std::string& out, char32_t c) {
  const char32_t at = c - 0xAC00;
  append(out, 0x1100 + at / 588);
  append(out, 0x1161 + at % 588 / 28);
  if (at % 28 != 0) append(out, 0x11A7 + at % 28);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2CEAF);
}

// Words in small letters; each sign of punctuation and each Chinese character is a word of its own.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  while (!text.empty()) {
    const char32_t c = next_character(text);
    if (is_space(c)) {
      if (!words.back().empty()) words.emplace_back();
    } else if (is_punctuation(c) || is_chinese(c)) {
      if (!words.back().empty()) words.emplace_back();
      append(words.back(), c);
      words.emplace_back();
    } else if (is_hangul(c)) {
      append_hangul(words.back(), c);
    } else if (!is_dropped(c) && !is_combining(c)) {
      append(words.back(), small_plain(c));
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace

bool WordPiece::read(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    numbers_.emplace(line, number++);
  }
  const auto unknown = numbers_.find("[UNK]"), begin = numbers_.find("[CLS]"), end = numbers_.find("[SEP]");
  if (unknown == numbers_.end() || begin == numbers_.end() || end == numbers_.end()) return false;
  unknown_ = unknown->second;
  begin_ = begin->second;
  end_ = end->second;
  return true;
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text, std::size_t longest) const {
  std::vector<std::int64_t> numbers = {begin_};
  for (const std::string& word : words_of(text)) {
    if (numbers.size() + 1 >= longest) break;
    add_word(word, numbers);
  }
  if (numbers.size() + 1 > longest) numbers.resize(longest - 1);
  numbers.push_back(end_);
  return numbers;
}

// The longest piece that the vocabulary has, then the longest of the rest with ## before it, and so on; a word with a rest
// that has none is unknown as a whole.
void WordPiece::add_word(const std::string& word, std::vector<std::int64_t>& out) const {
  const std::size_t before = out.size();
  const auto characters = static_cast<std::size_t>(std::count_if(word.begin(), word.end(), begins_character));
  for (std::size_t from = 0; from < word.size() && characters <= kLongestWord;) {
    std::size_t to = word.size();
    auto found = numbers_.end();
    for (; to > from; --to) {
      if (to < word.size() && !begins_character(word[to])) continue;
      found = numbers_.find((from == 0 ? "" : "##") + word.substr(from, to - from));
      if (found != numbers_.end()) break;
    }
    if (found == numbers_.end()) break;
    out.push_back(found->second);
    from = to;
    if (from == word.size()) return;
  }
  out.resize(before);
  out.push_back(unknown_);
}
