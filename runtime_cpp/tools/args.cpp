#include "args.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace hardtack::tools {
namespace {

const Option* find(const std::vector<Option>& options, const std::string& name) {
  const auto at = std::find_if(options.begin(), options.end(), [&](const Option& o) {
    return name == o.name || (*o.short_name != '\0' && name == o.short_name);
  });
  return at == options.end() ? nullptr : &*at;
}

}  // namespace

std::string Args::get(const std::string& name, const std::string& otherwise) const {
  const auto at = options.find(name);
  return at == options.end() ? otherwise : at->second.back();
}

std::vector<std::string> Args::all(const std::string& name) const {
  const auto at = options.find(name);
  return at == options.end() ? std::vector<std::string>() : at->second;
}

bool parse_args(int argc, char** argv, const std::vector<Option>& options, Args* args, std::string* problem) {
  bool only_operands = false;
  for (int i = 2; i < argc; ++i) {
    std::string word = argv[i];
    if (only_operands || word.size() < 2 || word[0] != '-') {
      args->operands.push_back(word);
      continue;
    }
    if (word == "--") {
      only_operands = true;
      continue;
    }
    const size_t equals = word.compare(0, 2, "--") == 0 ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const Option* option = find(options, name);
    if (option == nullptr) return *problem = "unknown option " + name, false;
    std::string value;
    if (*option->takes == '\0') {
      if (equals != std::string::npos) return *problem = name + " takes no value", false;
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else {
      if (++i >= argc) return *problem = name + " needs a value: " + option->takes, false;
      value = argv[i];
    }
    args->options[option->name].push_back(value);
  }
  return true;
}

bool parse_number(const Args& args, const std::string& name, int64_t lo, int64_t hi, int64_t* value,
                  std::string* problem) {
  if (!args.has(name)) return true;
  const std::string text = args.get(name);
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || number < lo || number > hi) {
    *problem =
        name + " is \"" + text + "\", expected a whole number from " + std::to_string(lo) + " to " + std::to_string(hi);
    return false;
  }
  *value = number;
  return true;
}

std::string option_table(const std::vector<Option>& options) {
  const auto left = [](const Option& o) {
    std::string text = *o.short_name == '\0' ? "" : std::string(o.short_name) + ", ";
    text += o.name;
    return *o.takes == '\0' ? text : text + " " + o.takes;
  };
  size_t width = 0;
  for (const Option& o : options) width = std::max(width, left(o).size());
  std::string out;
  for (const Option& o : options) {
    std::string name = left(o);
    name.append(width - name.size(), ' ');
    out += "  " + name + "  " + o.help + "\n";
  }
  return out;
}

}  // namespace hardtack::tools
