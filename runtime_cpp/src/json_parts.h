// What the readers of manifest.json and of plans have in common.
#pragma once

#include <vector>

#include "dtype.h"
#include "json_reader.h"

namespace hardtack::rt {

/// A name as docs/plan.md has it: "f32".
DType parse_dtype(JsonReader* json);
/// The type of an input, an output or a state, which may be complex: "c64", too.
DType parse_port_dtype(JsonReader* json);

template <typename Item>
void parse_list(JsonReader* json, Item item) {
  json->begin_array();
  while (json->next_item()) item();
}

/// The number of the row that is appended next.
template <typename Row>
uint32_t next_row(const std::vector<Row>& table) {
  return static_cast<uint32_t>(table.size());
}

/// Appends what `parse` returns for each item of a list; returns how many there are.
template <typename Row, typename Parse>
uint32_t append_list(JsonReader* json, std::vector<Row>* table, Parse parse) {
  const uint32_t first = next_row(*table);
  parse_list(json, [&] { table->push_back(parse()); });
  return next_row(*table) - first;
}

uint32_t append_indices(JsonReader* json, std::vector<uint32_t>* table);

/// The key `strides` and its value, appended behind a shape of `ndim` dimensions; false where it has another length.
[[nodiscard]] bool append_strides(JsonReader* json, uint32_t ndim, std::vector<uint32_t>* table);

}  // namespace hardtack::rt
