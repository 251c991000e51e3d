// Small files in which the system says something about itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hardtack::rt {

/// The content of a file, of which at most `most_nbytes` are read; empty when there is none.
std::string read_text(const std::string& path, size_t most_nbytes = size_t{1} << 20);

/// What stands in front of the first `separator`, which is cut off `text` with it; all of `text` without one.
std::string_view cut(std::string_view* text, char separator);

/// Whether `text` is a whole number of at most 63 bits with nothing around it, a sign in front aside.
bool parse_number(std::string_view text, int64_t* number);

/// A file that holds one such number and a newline.
bool read_number(const std::string& path, int64_t* number);

}  // namespace hardtack::rt
