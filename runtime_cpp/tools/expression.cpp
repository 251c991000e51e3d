#include "expression.h"

#include <algorithm>
#include <cctype>

namespace hardtack::tools {
namespace {

//   sum     ::= ['-'] product (('+' | '-') product)*
//   product ::= atom (('*' | '//' | '%') atom)*
//   atom    ::= number | name | ('min' | 'max') '(' sum (',' sum)* ')' | '(' sum ')'
class Evaluator {
 public:
  Evaluator(const std::string& text, const std::map<std::string, int64_t>& sizes) : text_(text), sizes_(sizes) {}

  bool all(int64_t* value) {
    *value = sum();
    space();
    return ok_ && at_ == text_.size();
  }

 private:
  static constexpr int kMaxDepth = 64;

  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(const char* token) {
    space();
    const std::string wanted = token;
    if (text_.compare(at_, wanted.size(), wanted) != 0) return false;
    at_ += wanted.size();
    return true;
  }
  int64_t fail() { return ok_ = false, 0; }

  int64_t sum() {
    if (++depth_ > kMaxDepth) return fail();
    const bool negative = take("-");
    int64_t value = product();
    if (negative && __builtin_sub_overflow(int64_t{0}, value, &value)) fail();
    while (ok_) {
      if (take("+")) {
        if (__builtin_add_overflow(value, product(), &value)) fail();
      } else if (take("-")) {
        if (__builtin_sub_overflow(value, product(), &value)) fail();
      } else {
        break;
      }
    }
    --depth_;
    return value;
  }

  int64_t product() {
    int64_t value = atom();
    while (ok_) {
      if (take("//")) {
        const int64_t b = atom();
        if (b < 1) return fail();
        value = value / b - (value % b < 0 ? 1 : 0);
      } else if (take("%")) {
        const int64_t b = atom();
        if (b < 1) return fail();
        value = value % b < 0 ? value % b + b : value % b;
      } else if (take("*")) {
        if (__builtin_mul_overflow(value, atom(), &value)) fail();
      } else {
        break;
      }
    }
    return value;
  }

  int64_t atom() {
    if (take("(")) {
      const int64_t value = sum();
      return take(")") ? value : fail();
    }
    space();
    const size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word = text_.substr(start, at_ - start);
    if (word == "min" || word == "max") return extreme(word == "min");
    const auto size = sizes_.find(word);
    if (size != sizes_.end()) return size->second;
    if (word.empty() || word.size() > 20 || word.find_first_not_of("-0123456789") != std::string::npos || word == "-")
      return fail();
    try {
      return std::stoll(word);
    } catch (...) {
      return fail();
    }
  }

  int64_t extreme(bool min) {
    if (!take("(")) return fail();
    int64_t value = sum();
    while (ok_ && take(",")) {
      const int64_t other = sum();
      value = min ? std::min(value, other) : std::max(value, other);
    }
    return take(")") ? value : fail();
  }

  const std::string& text_;
  const std::map<std::string, int64_t>& sizes_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace

bool evaluate(const std::string& text, const std::map<std::string, int64_t>& sizes, int64_t* value) {
  return Evaluator(text, sizes).all(value);
}

}  // namespace hardtack::tools
