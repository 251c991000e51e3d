// Text from clients: cut and checked so that what is said about it stays UTF-8, which JSON and protobuf ask for.
#ifndef HARDTACK_SERVER_CORE_TEXT_H
#define HARDTACK_SERVER_CORE_TEXT_H

#include <cstddef>
#include <string>
#include <string_view>

namespace hardtack::serve {

/// Bytes of the character that the text begins with, from 1 to 4; 0 when it is empty or begins with no UTF-8.
std::size_t character_nbytes(std::string_view text);

bool is_utf8(std::string_view text);

/// The text, or as much of it as `nbytes` hold, without a half character at the end.
std::string cut(std::string_view text, std::size_t nbytes);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_TEXT_H
