#include "json_mutator.h"

#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace hardtack::fuzz {
namespace {

using nlohmann::json;

/// A value and the name of the member that it is in, however deep in lists: "shape" for each size of a shape.
struct Place {
  json* value = nullptr;
  std::string name;
};

void collect(json& value, const std::string& name, std::vector<Place>* places) {
  places->push_back({&value, name});
  if (value.is_object())
    for (auto& [key, item] : value.items()) collect(item, key, places);
  else if (value.is_array())
    for (json& item : value) collect(item, name, places);
}

class Change {
 public:
  Change(json* document, std::mt19937_64& random) : random_(random) { collect(*document, "", &places_); }

  void make() {
    Place& place = places_[below(places_.size())];
    json& value = *place.value;
    if (below(4) == 0)
      take_from_elsewhere(place);
    else if (value.is_number_integer())
      value = other_number(value.get<int64_t>());
    else if (value.is_boolean())
      value = !value.get<bool>();
    else if (value.is_string())
      value = other_text(value.get<std::string>(), place.name);
    else if (value.is_array() && !value.empty())
      change_list(value);
    else if (value.is_object() && !value.empty() && below(4) == 0)
      value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
    else
      take_from_elsewhere(place);
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  /// A value of the same name and kind, if there is another: types, storages, instructions and expressions change places.
  void take_from_elsewhere(Place& place) {
    std::vector<const json*> others;
    for (const Place& other : places_) {
      if (other.value != place.value && other.name == place.name && other.value->type() == place.value->type())
        others.push_back(other.value);
    }
    if (others.empty()) return;
    const json copy = *others[below(others.size())];  // it may hold the place, or lie in it
    *place.value = copy;
  }

  int64_t other_number(int64_t n) {
    static const int64_t kEdges[] = {0, 1, -1, 2, 63, 64, 1LL << 31, 1LL << 32, 1LL << 47, INT64_MAX, INT64_MIN};
    const auto wrapped = static_cast<uint64_t>(n);
    switch (below(5)) {
      case 0: return kEdges[below(sizeof kEdges / sizeof kEdges[0])];
      case 1: return static_cast<int64_t>(wrapped + 1);
      case 2: return static_cast<int64_t>(wrapped - 1);
      case 3: return static_cast<int64_t>(wrapped * 2);
      default: {
        std::vector<int64_t> numbers;
        for (const Place& other : places_)
          if (other.value->is_number_integer()) numbers.push_back(other.value->get<int64_t>());
        return numbers[below(numbers.size())];
      }
    }
  }

  std::string other_text(const std::string& text, const std::string& name) {
    std::vector<std::string> texts;
    for (const Place& other : places_)
      if (other.value->is_string() && (other.name == name || below(16) == 0)) texts.push_back(*other.value);
    if (texts.empty() || below(8) == 0) return text.substr(0, below(text.size() + 1));
    return texts[below(texts.size())];
  }

  void change_list(json& list) {
    const size_t i = below(list.size()), j = below(list.size());
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(i);
    const json copy = list[j];
    switch (below(4)) {
      case 0: list.erase(at); break;
      case 1: list.insert(at, copy); break;
      case 2: list.push_back(copy); break;
      default: std::swap(list[i], list[j]);
    }
  }

  std::mt19937_64& random_;
  std::vector<Place> places_;
};

}  // namespace

std::string mutate_json(const std::string& text, std::mt19937_64& random) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return text;
  Change(&document, random).make();
  return document.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace hardtack::fuzz
