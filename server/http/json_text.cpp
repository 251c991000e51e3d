#include "server/http/json_text.h"

#include <algorithm>

namespace hardtack::serve::http {

namespace {

constexpr std::size_t kSmall = 4096;

// Numbers between two strings: what lies between commas. One look for each kSmall bytes finds all that are longer.
std::size_t longest_number(std::string_view text) {
  std::size_t longest = std::min(text.size(), kSmall);
  for (std::size_t at = kSmall; at < text.size(); at += kSmall) {
    const std::size_t before = text.rfind(',', at), begin = before == text.npos ? 0 : before + 1;
    const std::size_t end = std::min(text.find(',', at), text.size());
    longest = std::max(longest, end > begin ? end - begin : 0);
    at = std::max(at, end);
  }
  return longest;
}

// Where the string that begins at `at` ends: at the next quote that no backslash takes away.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (std::size_t end = text.find('"', at); end != text.npos; end = text.find('"', end + 1)) {
    std::size_t backslashes = 0;
    while (end - backslashes > at && text[end - backslashes - 1] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return end;
  }
  return text.size();
}

}  // namespace

std::size_t longest_token(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t quote = std::min(text.find('"', at), text.size());
    longest = std::max(longest, longest_number(text.substr(at, quote - at)));
    if (quote == text.size()) break;
    const std::size_t end = end_of_string(text, quote + 1);
    longest = std::max(longest, end - quote - 1);
    at = end + 1;
  }
  return longest;
}

std::size_t parser_nbytes(std::string_view text) {
  const std::size_t longest = text.size() <= kSmall ? 0 : longest_token(text);
  return longest <= kSmall ? 0 : 10 * longest;
}

}  // namespace hardtack::serve::http
