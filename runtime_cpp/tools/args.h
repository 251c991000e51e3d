// The command line of hardtack-rt: a word, options, operands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hardtack::tools {

/// An option as it is declared: `name` with dashes; `takes` names its value in the help, empty for a switch.
struct Option {
  const char* name;
  const char* takes;
  const char* help;
  const char* short_name = "";
};

struct Args {
  std::vector<std::string> operands;
  std::map<std::string, std::vector<std::string>> options;  // by long name; switches have one empty value

  bool has(const std::string& name) const { return options.count(name) > 0; }
  /// The last value given, or `otherwise`.
  std::string get(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> all(const std::string& name) const;
};

/// Parses argv[2...]. False with a sentence in `*problem`.
bool parse_args(int argc, char** argv, const std::vector<Option>& options, Args* args, std::string* problem);

/// A whole number within [lo, hi], or false with a sentence.
bool parse_number(const Args& args, const std::string& name, int64_t lo, int64_t hi, int64_t* value,
                  std::string* problem);

/// "1.10" style alignment of an option list for --help.
std::string option_table(const std::vector<Option>& options);

}  // namespace hardtack::tools
