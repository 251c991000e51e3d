#include "text.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace hardtack::tools {
namespace {

std::string format(const char* pattern, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value, unit);
  return text;
}

std::string styled(const char* code, const std::string& text, int fd) {
  static const bool plain = std::getenv("NO_COLOR") != nullptr;
  if (plain || !is_terminal(fd)) return text;
  return "\033[" + std::string(code) + "m" + text + "\033[0m";
}

std::string dims_text(const ht_dim_info* dims, int32_t ndim) {
  std::string out;
  for (int32_t d = 0; d < ndim; ++d) out += (d == 0 ? "" : ", ") + std::string(dims[d].text);
  return out;
}

// Whether the strides are what a contiguous tensor has, as far as fixed sizes tell.
bool contiguous(const ht_tensor_info& t) {
  int64_t expected = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    if (t.strides[d].lo == t.strides[d].hi && expected >= 0 && t.strides[d].lo != expected) return false;
    expected = expected < 0 || t.shape[d].lo != t.shape[d].hi ? -1 : expected * t.shape[d].lo;
  }
  return true;
}

// Terminals act on control characters; names come from files.
std::string printable(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

size_t columns(const std::string& text) {
  size_t n = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++n;  // UTF-8 continuation bytes take no column
    if (escape && c == 'm') escape = false;
  }
  return n;
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }
std::string bold(const std::string& text) { return styled("1", text, 1); }
std::string dim(const std::string& text) { return styled("2", text, 1); }
std::string red(const std::string& text) { return styled("31;1", text, 2); }

std::string bytes_text(uint64_t nbytes) {
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (nbytes < 1024) return std::to_string(nbytes) + " B";
  double value = static_cast<double>(nbytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 3) value /= 1024, ++unit;
  return format(value < 10 ? "%.2f %s" : "%.1f %s", value, units[unit]);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return format("%.2f %s", seconds * 1e6, "us");
  return seconds < 1 ? format("%.3f %s", seconds * 1e3, "ms") : format("%.3f %s", seconds, "s");
}

std::string range_text(int64_t lo, int64_t hi) {
  if (hi == INT64_MAX) return "at least " + std::to_string(lo);
  return std::to_string(lo) + " to " + std::to_string(hi);
}

std::string tensor_text(const ht_tensor_info& t) {
  std::string out = std::string(t.dtype_name) + " [" + dims_text(t.shape, t.ndim) + "]";
  if (!contiguous(t)) out += " strides (" + dims_text(t.strides, t.ndim) + ")";
  if (t.written != 0) out += ", written";
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (c >= widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], columns(row[c]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      line += " " + (row[c].find('\033') == std::string::npos ? printable(row[c]) : row[c]);
      if (c + 1 < row.size()) line.append(widths[c] - columns(row[c]) + 1, ' ');
    }
    out += line + "\n";
  }
  return out;
}

void JsonWriter::comma() {
  if (!fresh_) out_ += ',';
  fresh_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  comma();
  out_ += bracket;
  fresh_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  fresh_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(const std::string& name) {
  text(name);
  out_ += ':';
  fresh_ = true;
  return *this;
}

JsonWriter& JsonWriter::text(const std::string& value) {
  comma();
  out_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out_ += escape;
    } else {
      out_ += c;
    }
  }
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::number(int64_t value) { return raw(std::to_string(value)); }
JsonWriter& JsonWriter::number(uint64_t value) { return raw(std::to_string(value)); }
JsonWriter& JsonWriter::boolean(bool value) { return raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::real(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g", value);
  return raw(std::isfinite(value) ? text : "null");
}

JsonWriter& JsonWriter::raw(const std::string& json) {
  comma();
  out_ += json;
  return *this;
}

}  // namespace hardtack::tools
