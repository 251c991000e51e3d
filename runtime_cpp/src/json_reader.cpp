#include "json_reader.h"

#include <cstring>

namespace hardtack::rt {

void JsonReader::fail(const char* message) {
  if (!status_.ok()) return;
  status_ = error(HT_BAD_BUNDLE, "%s: byte %zu: %s", what_, static_cast<size_t>(p_ - begin_), message);
  p_ = end_;
}

void JsonReader::fail(const char* message, const char* text) {
  if (status_.ok()) fail((std::string(message) + " \"" + std::string(text).substr(0, 200) + "\"").c_str());
}

void JsonReader::fail_expected(const char* expected) {
  if (!status_.ok()) return;
  std::string found = p_ < end_ ? "\"" + std::string(p_, static_cast<size_t>(end_ - p_ < 12 ? end_ - p_ : 12)) + "\""
                                : std::string("the end");
  fail(("expected " + std::string(expected) + ", found " + found).c_str());
}

Status JsonReader::finish() {
  space();
  if (p_ != end_) fail_expected("the end");
  return std::move(status_);
}

void JsonReader::space() {
  if (mode_ == Mode::canonical) return;
  while (p_ < end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t')) ++p_;
}

bool JsonReader::take(char c) {
  space();
  if (p_ < end_ && *p_ == c) return ++p_, true;
  return false;
}

void JsonReader::push() {
  if (depth_ == kMaxDepth) return fail("nested more than 32 deep");
  ++depth_;
  first_[depth_] = true;
  last_key_[depth_] = nullptr;
}

void JsonReader::pop() {
  if (depth_ > 0) --depth_;
}

// Between two entries of a container: a comma, or its end. True when an entry follows.
bool JsonReader::separator(char closer) {
  if (!ok()) return false;
  if (take(closer)) return pop(), false;
  if (first_[depth_]) {
    first_[depth_] = false;
    return true;
  }
  if (!take(',')) {
    fail_expected(closer == ']' ? "\",\" or \"]\"" : "\",\" or \"}\"");
    return false;
  }
  return true;
}

void JsonReader::begin_object() {
  if (!take('{')) return fail_expected("an object");
  push();
}

void JsonReader::key(const char* expected) {
  if (!ok()) return;
  if (!separator('}')) {
    if (ok()) fail("missing key", expected);
    return;
  }
  const size_t length = std::strlen(expected);
  if (static_cast<size_t>(end_ - p_) < length + 3 || p_[0] != '"' || std::memcmp(p_ + 1, expected, length) != 0 ||
      p_[length + 1] != '"') {
    return fail_expected(("key \"" + std::string(expected) + "\"").c_str());
  }
  p_ += length + 2;
  if (!take(':')) fail_expected("\":\"");
}

const char* JsonReader::next_key() {
  if (!separator('}')) return nullptr;
  space();
  const char* name = string();
  if (!ok()) return nullptr;
  const char* last = last_key_[depth_];
  if (mode_ == Mode::canonical && last != nullptr && std::strcmp(last, name) >= 0) {
    fail("keys are not in ascending order at", name);
    return nullptr;
  }
  last_key_[depth_] = name;
  if (!take(':')) fail_expected("\":\"");
  return ok() ? name : nullptr;
}

void JsonReader::end_object() {
  if (!ok()) return;
  if (!take('}')) return fail_expected("the object's end");
  pop();
}

void JsonReader::begin_array() {
  if (!take('[')) return fail_expected("an array");
  push();
}

bool JsonReader::next_item() { return separator(']'); }

void JsonReader::item() {
  if (!ok()) return;
  if (!separator(']') && ok()) fail("the array is too short");
}

void JsonReader::end_array() {
  if (!ok()) return;
  if (!take(']')) return fail_expected("the array's end");
  pop();
}

int64_t JsonReader::integer() {
  space();
  const char* start = p_;
  const bool negative = p_ < end_ && *p_ == '-';
  if (negative) ++p_;
  const char* digits = p_;
  uint64_t value = 0;
  bool fits = true;
  for (; p_ < end_ && *p_ >= '0' && *p_ <= '9'; ++p_) {
    fits = fits && !__builtin_mul_overflow(value, uint64_t{10}, &value) &&
           !__builtin_add_overflow(value, static_cast<uint64_t>(*p_ - '0'), &value);
  }
  const bool spelled = p_ > digits && (*digits != '0' || p_ == digits + 1) && !(negative && *digits == '0');
  const bool fraction = p_ < end_ && (*p_ == '.' || *p_ == 'e' || *p_ == 'E');
  if (!spelled || fraction) return p_ = start, fail_expected("an integer"), 0;
  if (!fits || value > uint64_t{INT64_MAX} + (negative ? 1 : 0)) return p_ = start, fail("not a 64-bit integer"), 0;
  return static_cast<int64_t>(negative ? 0 - value : value);
}

uint32_t JsonReader::index(uint32_t limit) {
  const int64_t value = integer();
  if (value < 0 || value > limit) return fail("a number is out of range"), 0;
  return static_cast<uint32_t>(value);
}

bool JsonReader::boolean() {
  space();
  const size_t left = static_cast<size_t>(end_ - p_);
  if (left >= 4 && std::memcmp(p_, "true", 4) == 0) return p_ += 4, true;
  if (left >= 5 && std::memcmp(p_, "false", 5) == 0) return p_ += 5, false;
  return fail_expected("true or false"), false;
}

bool JsonReader::null() {
  space();
  if (end_ - p_ < 4 || std::memcmp(p_, "null", 4) != 0) return false;
  return p_ += 4, true;
}

const char* JsonReader::string() { return string_view().data(); }

std::string_view JsonReader::string_view() {
  space();
  if (!ok() || p_ >= end_ || *p_ != '"') return fail_expected("a string"), std::string_view("", 0);
  ++p_;
  const size_t length = decode_string(pool_->next());
  if (!ok()) return std::string_view("", 0);
  return std::string_view(pool_->commit(length), length);
}

// Decodes up to and with the closing quote; the pool has room, since decoding never lengthens.
size_t JsonReader::decode_string(char* out) {
  size_t n = 0;
  while (p_ < end_) {
    const unsigned char c = static_cast<unsigned char>(*p_);
    if (c == '"') return ++p_, n;
    if (c == '\\') {
      n += decode_escape(out + n);
      if (!ok()) return 0;
      continue;
    }
    if (c < 0x20) return fail("a control character in a string"), 0;
    if (c >= 0x7F && mode_ == Mode::canonical) return fail("a character in a string that must be escaped"), 0;
    out[n++] = static_cast<char>(c);
    ++p_;
  }
  return fail("a string does not end"), 0;
}

bool JsonReader::hex4(uint32_t* unit) {
  if (end_ - p_ < 4) return false;
  *unit = 0;
  for (int i = 0; i < 4; ++i, ++p_) {
    uint32_t digit = 0;
    if (*p_ >= '0' && *p_ <= '9')
      digit = static_cast<uint32_t>(*p_ - '0');
    else if (*p_ >= 'a' && *p_ <= 'f')
      digit = static_cast<uint32_t>(*p_ - 'a' + 10);
    else if (*p_ >= 'A' && *p_ <= 'F' && mode_ == Mode::lenient)
      digit = static_cast<uint32_t>(*p_ - 'A' + 10);
    else
      return false;
    *unit = *unit << 4 | digit;
  }
  return true;
}

// One escape at p_; writes its UTF-8 (at most 4 bytes for the 12 of a surrogate pair) and returns the length.
size_t JsonReader::decode_escape(char* out) {
  static constexpr char kShort[] = "\"\"\\\\b\bf\fn\nr\rt\t";  // pairs: letter, meaning
  ++p_;
  if (p_ >= end_) return fail("a string does not end"), 0;
  for (size_t i = 0; i + 1 < sizeof kShort; i += 2) {
    if (*p_ == kShort[i]) return ++p_, out[0] = kShort[i + 1], 1;
  }
  if (*p_ == '/' && mode_ == Mode::lenient) return ++p_, out[0] = '/', 1;
  if (*p_ != 'u') return fail("an unknown escape in a string"), 0;
  ++p_;
  uint32_t code = 0, low = 0;
  if (!hex4(&code)) return fail("a bad \\u escape in a string"), 0;
  if (code >= 0xD800 && code < 0xDC00) {
    if (end_ - p_ < 6 || p_[0] != '\\' || p_[1] != 'u') return fail("a lone surrogate in a string"), 0;
    p_ += 2;
    if (!hex4(&low) || low < 0xDC00 || low > 0xDFFF) return fail("a lone surrogate in a string"), 0;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    return fail("a lone surrogate in a string"), 0;
  }
  if (code == 0) return fail("U+0000 in a string"), 0;
  const bool has_shorter =
      (code >= 0x20 && code < 0x7F) || code == 8 || code == 9 || code == 10 || code == 12 || code == 13;
  if (has_shorter && mode_ == Mode::canonical) return fail("a character in a string is escaped but need not be"), 0;
  if (code < 0x80) return out[0] = static_cast<char>(code), 1;
  if (code < 0x800) {
    out[0] = static_cast<char>(0xC0 | code >> 6);
    out[1] = static_cast<char>(0x80 | (code & 0x3F));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = static_cast<char>(0xE0 | code >> 12);
    out[1] = static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out[2] = static_cast<char>(0x80 | (code & 0x3F));
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | code >> 18);
  out[1] = static_cast<char>(0x80 | (code >> 12 & 0x3F));
  out[2] = static_cast<char>(0x80 | (code >> 6 & 0x3F));
  out[3] = static_cast<char>(0x80 | (code & 0x3F));
  return 4;
}

char JsonReader::peek() {
  space();
  return ok() && p_ < end_ ? *p_ : '\0';
}

std::string_view JsonReader::skip() {
  space();
  const char* start = p_;
  switch (peek()) {
    case '{':
      begin_object();
      while (next_key() != nullptr) skip();
      break;
    case '[':
      begin_array();
      while (next_item()) skip();
      break;
    case '"': string(); break;
    case 't':
    case 'f': boolean(); break;
    case 'n':
      if (!null()) fail_expected("a value");
      break;
    default: integer(); break;
  }
  return ok() ? std::string_view(start, static_cast<size_t>(p_ - start)) : std::string_view("", 0);
}

}  // namespace hardtack::rt
