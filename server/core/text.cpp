#include "server/core/text.h"

namespace hardtack::serve {

namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

}  // namespace

std::size_t character_nbytes(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t nbytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (nbytes == 0 || text.size() < nbytes) return 0;
  for (std::size_t i = 1; i < nbytes; ++i) {
    if ((byte_at(text, i) & 0xc0U) != 0x80) return 0;
  }
  const unsigned second = byte_at(text, 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool beyond = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : nbytes;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t nbytes = character_nbytes(text);
    if (nbytes == 0) return false;
    text.remove_prefix(nbytes);
  }
  return true;
}

std::string cut(std::string_view text, std::size_t nbytes) {
  if (text.size() <= nbytes) return std::string(text);
  while (nbytes > 0 && (byte_at(text, nbytes) & 0xc0U) == 0x80) --nbytes;
  return std::string(text.substr(0, nbytes));
}

}  // namespace hardtack::serve
