#include "safetensors.h"

#include <algorithm>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr int kMaxRank = 64;
constexpr uint64_t kMaxHeaderNbytes = 100000000;  // the safetensors library's own limit

bool is_padding(const char* name) { return std::strncmp(name, "__pad_", 6) == 0; }

void parse_shape(JsonReader* json, WeightTensor* tensor) {
  tensor->numel = 1;
  int ndim = 0;
  json->begin_array();
  while (json->next_item()) {
    if (++ndim > kMaxRank) json->fail("more than 64 dimensions of", tensor->name);
    const int64_t size = json->integer();
    if (size < 0 || !checked_mul(tensor->numel, size, &tensor->numel)) json->fail("a bad shape of", tensor->name);
  }
}

void parse_tensor(JsonReader* json, uint64_t data_start, uint64_t member_nbytes, WeightTensor* tensor) {
  bool has_dtype = false, has_shape = false, has_offsets = false;
  int64_t begin = 0, end = 0;
  json->begin_object();
  while (const char* key = json->next_key()) {
    bool* seen = nullptr;
    if (std::strcmp(key, "dtype") == 0) {
      seen = &has_dtype;
      if (!dtype_from_safetensors(json->string_view(), &tensor->dtype)) json->fail("unknown dtype of", tensor->name);
    } else if (std::strcmp(key, "shape") == 0) {
      seen = &has_shape;
      parse_shape(json, tensor);
    } else if (std::strcmp(key, "data_offsets") == 0) {
      seen = &has_offsets;
      json->begin_array();
      json->item();
      begin = json->integer();
      json->item();
      end = json->integer();
      json->end_array();
    }
    if (seen == nullptr) return json->fail("unknown key", key);
    if (*seen) return json->fail("key twice:", key);
    *seen = true;
  }
  if (!json->ok()) return;
  if (!has_dtype || !has_shape || !has_offsets)
    return json->fail("dtype, shape or data_offsets is missing of", tensor->name);
  int64_t nbytes = 0;
  if (begin < 0 || end < begin || !checked_mul(tensor->numel, itemsize(tensor->dtype), &nbytes) ||
      nbytes != end - begin || static_cast<uint64_t>(end) > member_nbytes - data_start) {
    return json->fail("shape and data_offsets do not agree, or lie outside the member, for", tensor->name);
  }
  tensor->offset = data_start + static_cast<uint64_t>(begin);
  tensor->nbytes = static_cast<uint64_t>(nbytes);
}

// Tensors and padding follow each other without gaps; tensors ascend by name and are aligned.
Status check_layout(std::vector<WeightTensor>* tensors, uint64_t data_start, uint64_t member_nbytes,
                    const char* member) {
  std::sort(tensors->begin(), tensors->end(), [](const WeightTensor& a, const WeightTensor& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    if (a.nbytes != b.nbytes) return a.nbytes < b.nbytes;
    return std::strcmp(a.name, b.name) < 0;
  });
  uint64_t position = data_start;
  const char* last = nullptr;
  for (const WeightTensor& t : *tensors) {
    if (t.offset != position) {
      return error(HT_BAD_BUNDLE, "member %s: a gap or overlap before tensor \"%s\"", member, t.name);
    }
    position += t.nbytes;
    if (is_padding(t.name)) {
      if (t.dtype != DType::u8) return error(HT_BAD_BUNDLE, "member %s: padding \"%s\" is not U8", member, t.name);
      continue;
    }
    if (t.offset % kAlignment != 0) {
      return error(HT_BAD_BUNDLE, "member %s: tensor \"%s\" is not aligned to 256 bytes", member, t.name);
    }
    if (last != nullptr && std::strcmp(last, t.name) >= 0) {
      return error(HT_BAD_BUNDLE, "member %s: tensor \"%s\" is out of order", member, t.name);
    }
    last = t.name;
  }
  if (position != member_nbytes) {
    return error(HT_BAD_BUNDLE, "member %s: bytes after the last tensor", member);
  }
  return Status();
}

Status check_unique(const std::vector<WeightTensor>& tensors, const char* member) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const WeightTensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return Status();
  return error(HT_BAD_BUNDLE, "member %s: tensor \"%s\" twice", member, std::string(*twice).c_str());
}

}  // namespace

const WeightTensor* WeightsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const WeightTensor& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Status weights_header_nbytes(const uint8_t first[8], uint64_t member_nbytes, const char* member, uint64_t* nbytes) {
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= uint64_t{first[i]} << (8 * i);
  if (member_nbytes < 8 || length > member_nbytes - 8 || length > kMaxHeaderNbytes) {
    return error(HT_BAD_BUNDLE, "member %s: its header of %llu bytes does not fit into its %llu bytes", member,
                 static_cast<unsigned long long>(length), static_cast<unsigned long long>(member_nbytes));
  }
  *nbytes = length + 8;
  if (*nbytes % kAlignment != 0) {
    return error(HT_BAD_BUNDLE, "member %s: header length + 8 is %llu, not a multiple of 256", member,
                 static_cast<unsigned long long>(*nbytes));
  }
  return Status();
}

Status parse_weights_header(std::string_view header, uint64_t member_nbytes, const char* member, WeightsHeader* out) {
  uint64_t expected = 0;
  if (header.size() < 8) return error(HT_BAD_BUNDLE, "member %s: too short", member);
  HT_RETURN_IF_ERROR(
      weights_header_nbytes(reinterpret_cast<const uint8_t*>(header.data()), member_nbytes, member, &expected));
  if (expected != header.size()) return error(HT_BAD_BUNDLE, "member %s: its header is cut off", member);
  out->texts = std::make_shared<TextPool>(header.size());
  JsonReader json(header.substr(8), out->texts.get(), member, JsonReader::Mode::lenient);
  json.begin_object();
  while (const char* name = json.next_key()) {
    WeightTensor tensor;
    tensor.name = name;
    parse_tensor(&json, header.size(), member_nbytes, &tensor);
    out->tensors.push_back(tensor);
  }
  HT_RETURN_IF_ERROR(json.finish());
  HT_RETURN_IF_ERROR(check_unique(out->tensors, member));
  HT_RETURN_IF_ERROR(check_layout(&out->tensors, header.size(), member_nbytes, member));
  const auto padding = [](const WeightTensor& t) { return is_padding(t.name); };
  out->tensors.erase(std::remove_if(out->tensors.begin(), out->tensors.end(), padding), out->tensors.end());
  return Status();
}

}  // namespace hardtack::rt
