#include "json_parts.h"

namespace hardtack::rt {

DType parse_port_dtype(JsonReader* json) {
  DType dtype = DType::u8;
  const std::string_view name = json->string_view();
  if (json->ok() && !dtype_from_name(name, &dtype)) json->fail("unknown dtype", name.data());
  return dtype;
}

DType parse_dtype(JsonReader* json) {
  const DType dtype = parse_port_dtype(json);
  if (json->ok() && is_complex(dtype)) json->fail("unknown dtype", dtype_name(dtype));
  return dtype;
}

uint32_t append_indices(JsonReader* json, std::vector<uint32_t>* table) {
  return append_list(json, table, [json] { return json->index(); });
}

bool append_strides(JsonReader* json, uint32_t ndim, std::vector<uint32_t>* table) {
  json->key("strides");
  return append_indices(json, table) == ndim;
}

}  // namespace hardtack::rt
