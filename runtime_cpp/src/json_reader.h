// A pull parser for the bundle's JSON: no tree is built, the caller asks for what the format says comes next.
//
// Canonical mode accepts byte for byte what Python's json.dumps(sort_keys=True, separators=(",", ":")) writes, so every
// object's keys come in a known order and a duplicate, missing or unknown key is the same error: another key was
// expected. Lenient mode (safetensors headers, which other tools write) allows whitespace, UTF-8 and any order.
// Numbers are 64-bit integers in both. The first error sticks: later calls return zeros and empty strings, and loops
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "status.h"

namespace hardtack::rt {

/// Owns the decoded strings of one document. Decoding never lengthens a string, so one block of the document's size
/// does.
class TextPool {
 public:
  explicit TextPool(size_t document_nbytes) : block_(new char[document_nbytes + 1]) {}
  /// Where the next string may be written; ends with a NUL after `commit`.
  char* next() { return block_.get() + used_; }
  const char* commit(size_t length) {
    char* text = next();
    text[length] = '\0';
    used_ += length + 1;
    return text;
  }

 private:
  std::unique_ptr<char[]> block_;
  size_t used_ = 0;
};

class JsonReader {
 public:
  enum class Mode { canonical, lenient };
  static constexpr int kMaxDepth = 32;

  /// `what` names the document in errors ("manifest.json").
  JsonReader(std::string_view text, TextPool* pool, const char* what, Mode mode = Mode::canonical)
      : begin_(text.data()), p_(text.data()), end_(text.data() + text.size()), pool_(pool), what_(what), mode_(mode) {}

  bool ok() const { return status_.ok(); }
  /// After the last value: nothing may follow.
  Status finish();
  /// Records an error at the current place, unless there is one already.
  void fail(const char* message);
  /// The same for `message` with a string from the document.
  void fail(const char* message, const char* text);

  void begin_object();
  /// The next key must be this one.
  void key(const char* expected);
  /// Any next key, ascending in canonical mode; null at the object's end, which it consumes.
  const char* next_key();
  void end_object();

  void begin_array();
  /// True when another item follows; consumes the array's end otherwise.
  bool next_item();
  /// For arrays of known length: the next item must be there; `end_array` then closes.
  void item();
  void end_array();

  int64_t integer();
  /// An integer in [0, limit].
  uint32_t index(uint32_t limit = 0x7FFFFFFF);
  bool boolean();
  /// Consumes `null` if it comes next.
  bool null();
  /// Ends with a NUL and holds none; lives in the pool.
  const char* string();
  std::string_view string_view();
  /// The first character of the next value, or NUL.
  char peek();
  /// The text of the next value, whatever it is, checked.
  std::string_view skip();

 private:
  void space();
  bool take(char c);
  void push();
  void pop();
  bool separator(char closer);
  size_t decode_string(char* out);
  size_t decode_escape(char* out);
  bool hex4(uint32_t* unit);
  void fail_expected(const char* expected);

  const char* begin_;
  const char* p_;
  const char* end_;
  TextPool* pool_;
  const char* what_;
  Mode mode_;
  Status status_;
  int depth_ = 0;
  bool first_[kMaxDepth + 1] = {};
  const char* last_key_[kMaxDepth + 1] = {};
};

}  // namespace hardtack::rt
