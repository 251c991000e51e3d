// What hardtack-rt prints: tables for people, JSON for programs.
#pragma once

#include <hardtack/hardtack.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hardtack::tools {

/// "1.5 MiB", "340 B".
std::string bytes_text(uint64_t nbytes);
/// "12.3 us", "4.56 ms".
std::string time_text(double seconds);
/// "f32 [s0, 3]", with strides when they are not contiguous.
std::string tensor_text(const ht_tensor_info& tensor);
/// "0 to 1024", "at least 1".
std::string range_text(int64_t lo, int64_t hi);

/// Escape sequences when standard output is a terminal and NO_COLOR is not set; otherwise the text alone.
std::string bold(const std::string& text);
std::string dim(const std::string& text);
std::string red(const std::string& text);
bool is_terminal(int fd);

/// Columns aligned on two spaces, each line indented by two.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// Writes one JSON document; the caller keeps the structure right.
class JsonWriter {
 public:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& key(const std::string& name);
  JsonWriter& text(const std::string& value);
  JsonWriter& number(int64_t value);
  JsonWriter& number(uint64_t value);
  JsonWriter& real(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  /// Text that is JSON already.
  JsonWriter& raw(const std::string& json);
  const std::string& str() const { return out_; }

 private:
  void comma();
  std::string out_;
  bool fresh_ = true;
};

}  // namespace hardtack::tools
