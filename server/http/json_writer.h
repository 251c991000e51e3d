// JSON text, written as it goes: a tree of nlohmann-json takes memory in its destructor, and ends the process where there is none.
#ifndef HARDTACK_SERVER_HTTP_JSON_WRITER_H
#define HARDTACK_SERVER_HTTP_JSON_WRITER_H

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "server/http/message.h"

namespace hardtack::serve::http {

class JsonWriter {
 public:
  /// What `fill` writes becomes the members or the elements. Names come by key() or member().
  template <typename Fill>
  void object(const Fill& fill) {
    enclose('{', fill, '}');
  }
  template <typename Fill>
  void array(const Fill& fill) {
    enclose('[', fill, ']');
  }
  void key(std::string_view name) {
    value(name);
    text_ += ':';
    first_ = true;
  }
  void value(std::string_view text) {
    separate();
    append_json_string(text_, text);
  }
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  template <typename Whole, typename = std::enable_if_t<std::is_integral_v<Whole> && !std::is_same_v<Whole, bool>>>
  void value(Whole number) {
    separate();
    text_ += std::to_string(number);
  }
  template <typename List, typename = decltype(std::declval<List>().begin()),
            typename = std::enable_if_t<!std::is_convertible_v<List, std::string_view>>>
  void value(const List& list) {
    array([&] {
      for (const auto& one : list) value(one);
    });
  }
  template <typename Value>
  void member(std::string_view name, const Value& of) {
    key(name);
    value(of);
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  template <typename Fill>
  void enclose(char open, const Fill& fill, char close) {
    separate();
    text_ += open;
    first_ = true;
    fill();
    text_ += close;
    first_ = false;
  }

  std::string text_;
  bool first_ = true;  // of what holds the next value
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_JSON_WRITER_H
