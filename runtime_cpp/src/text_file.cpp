#include "text_file.h"

#include <charconv>
#include <cstdio>

namespace hardtack::rt {

std::string read_text(const std::string& path, size_t most_nbytes) {
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char block[4096];
  while (text.size() < most_nbytes) {
    const size_t wanted = most_nbytes - text.size() < sizeof block ? most_nbytes - text.size() : sizeof block;
    const size_t nbytes = std::fread(block, 1, wanted, file);
    if (nbytes == 0) break;
    text.append(block, nbytes);
  }
  std::fclose(file);
  return text;
}

std::string_view cut(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

bool parse_number(std::string_view text, int64_t* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, *number);
  return failed == std::errc() && stop == end;
}

bool read_number(const std::string& path, int64_t* number) {
  const std::string text = read_text(path);
  std::string_view rest = text;
  return parse_number(cut(&rest, '\n'), number) && rest.empty();
}

}  // namespace hardtack::rt
