#include "manifest.h"

#include <algorithm>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kFormat = 1;
constexpr const char* kWhat = "manifest.json";

DType parse_dtype(JsonReader* json) {
  DType dtype = DType::u8;
  const std::string_view name = json->string_view();
  if (json->ok() && !dtype_from_name(name, &dtype)) json->fail("unknown dtype", name.data());
  return dtype;
}

void parse_hex(JsonReader* json, uint8_t* out, size_t nbytes) {
  const std::string_view text = json->string_view();
  if (text.size() != 2 * nbytes) return json->fail("a hexadecimal text of the wrong length");
  for (size_t i = 0; i < text.size(); ++i) {
    const char* digits = "0123456789abcdef";
    const char* digit = text[i] == '\0' ? nullptr : std::strchr(digits, text[i]);
    if (digit == nullptr) return json->fail("not lower-case hexadecimal:", text.data());
    const uint8_t value = static_cast<uint8_t>(digit - digits);
    out[i / 2] = static_cast<uint8_t>(out[i / 2] << 4 | value);
  }
}

std::vector<ManifestDim> parse_dims(JsonReader* json) {
  std::vector<ManifestDim> dims;
  json->begin_array();
  while (json->next_item()) {
    ManifestDim dim;
    dim.fixed = json->peek() != '"';
    if (dim.fixed) {
      dim.value = json->integer();
      if (dim.value < 0) json->fail("a negative size or stride");
    } else {
      dim.text = json->string();
    }
    dims.push_back(dim);
  }
  return dims;
}

std::vector<ManifestTensor> parse_tensors(JsonReader* json) {
  std::vector<ManifestTensor> tensors;
  json->begin_array();
  while (json->next_item()) {
    ManifestTensor t;
    json->begin_object();
    json->key("dtype");
    t.dtype = parse_dtype(json);
    json->key("name");
    t.name = json->string();
    json->key("shape");
    t.shape = parse_dims(json);
    json->key("strides");
    t.strides = parse_dims(json);
    json->end_object();
    if (t.shape.size() != t.strides.size()) json->fail("shape and strides differ in length for", t.name);
    tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<ManifestSym> parse_syms(JsonReader* json) {
  std::vector<ManifestSym> syms;
  json->begin_array();
  while (json->next_item()) {
    ManifestSym sym;
    json->begin_object();
    json->key("hi");
    if (!json->null()) sym.hi = json->integer();
    json->key("lo");
    sym.lo = json->integer();
    json->key("name");
    sym.name = json->string();
    json->end_object();
    syms.push_back(sym);
  }
  return syms;
}

ManifestEntry parse_entry(JsonReader* json) {
  ManifestEntry entry;
  json->begin_object();
  json->key("in_tree");
  entry.in_tree = json->skip();
  json->key("inputs");
  entry.inputs = parse_tensors(json);
  json->key("name");
  entry.name = json->string();
  json->key("out_tree");
  entry.out_tree = json->skip();
  json->key("outputs");
  entry.outputs = parse_tensors(json);
  json->key("plans");
  json->begin_object();
  while (const char* target = json->next_key()) {
    const char* member = json->string();
    entry.plans.push_back({target, member});
  }
  json->key("syms");
  entry.syms = parse_syms(json);
  json->end_object();
  return entry;
}

void parse_shape(JsonReader* json, ManifestArray* array) {
  int64_t nbytes = itemsize(array->dtype);
  json->begin_array();
  while (json->next_item()) {
    const int64_t size = json->integer();
    array->shape.push_back(size);
    if (size < 0 || !checked_mul(nbytes, size, &nbytes) || nbytes >= kMaxNbytes)
      json->fail("a bad shape of", array->name);
  }
  array->nbytes = nbytes;
}

ManifestArray parse_constant(JsonReader* json) {
  ManifestArray constant;
  json->begin_object();
  json->key("dtype");
  constant.dtype = parse_dtype(json);
  json->key("file");
  constant.file = json->string();
  json->key("name");
  constant.name = json->string();
  json->key("shape");
  parse_shape(json, &constant);
  json->key("tensor");
  constant.tensor = json->string();
  json->end_object();
  return constant;
}

ManifestArray parse_state(JsonReader* json) {
  ManifestArray state;
  json->begin_object();
  json->key("dtype");
  state.dtype = parse_dtype(json);
  json->key("init");
  if (!json->null()) state.init = json->string();
  json->key("name");
  state.name = json->string();
  json->key("shape");
  parse_shape(json, &state);
  json->end_object();
  return state;
}

ManifestTarget parse_target(JsonReader* json) {
  ManifestTarget target;
  json->begin_object();
  json->key("device");
  target.device = json->string();
  json->key("library");
  if (!json->null()) target.library = json->string();
  json->key("name");
  target.name = json->string();
  json->key("requires");
  json->begin_array();
  while (json->next_item()) target.requirements.push_back(json->string());
  json->end_object();
  return target;
}

ManifestMember parse_member(JsonReader* json) {
  ManifestMember member;
  json->begin_object();
  json->key("name");
  member.name = json->string();
  json->key("nbytes");
  const int64_t nbytes = json->integer();
  if (nbytes < 0) json->fail("a negative size of", member.name);
  member.nbytes = static_cast<uint64_t>(nbytes);
  json->key("sha256");
  member.sha256 = json->string();
  json->end_object();
  return member;
}

std::vector<NamedText> parse_texts(JsonReader* json) {
  std::vector<NamedText> texts;
  json->begin_object();
  while (const char* name = json->next_key()) {
    const char* text = json->string();
    texts.push_back({name, text});
  }
  return texts;
}

ManifestSignature parse_signature(JsonReader* json) {
  ManifestSignature signature;
  if (json->null()) return signature;
  signature.present = true;
  json->begin_object();
  json->key("algorithm");
  const char* algorithm = json->string();
  if (std::strcmp(algorithm, "ed25519") != 0) json->fail("unknown signature algorithm", algorithm);
  json->key("public_key");
  parse_hex(json, signature.public_key, sizeof signature.public_key);
  json->key("value");
  parse_hex(json, signature.value, sizeof signature.value);
  json->end_object();
  return signature;
}

// A document of another format may differ anywhere, so its number is looked up first.
Status check_format(std::string_view text) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, kWhat);
  int64_t format = -1;
  json.begin_object();
  while (const char* key = json.next_key()) {
    if (std::strcmp(key, "format") == 0)
      format = json.integer();
    else
      json.skip();
  }
  HT_RETURN_IF_ERROR(json.finish());
  if (format == kFormat) return Status();
  return error(HT_BAD_BUNDLE, "this bundle has format %lld; this version of Hardtack (%s) reads format %lld",
               static_cast<long long>(format), ht_version(), static_cast<long long>(kFormat));
}

void parse_top(JsonReader* json, Manifest* m) {
  json->begin_object();
  json->key("constants");
  json->begin_array();
  while (json->next_item()) m->constants.push_back(parse_constant(json));
  json->key("entries");
  json->begin_array();
  while (json->next_item()) m->entries.push_back(parse_entry(json));
  json->key("format");
  json->integer();
  json->key("members");
  json->begin_array();
  while (json->next_item()) m->members.push_back(parse_member(json));
  json->key("numerics");
  m->numerics = parse_texts(json);
  json->key("producer");
  m->producer = parse_texts(json);
  json->key("signature");
  m->signature = parse_signature(json);
  json->key("states");
  json->begin_array();
  while (json->next_item()) m->states.push_back(parse_state(json));
  json->key("targets");
  json->begin_array();
  while (json->next_item()) m->targets.push_back(parse_target(json));
  json->end_object();
}

Status bad(const char* format, const char* a, const char* b = "") __attribute__((format(printf, 1, 0)));
Status bad(const char* format, const char* a, const char* b) {
  return in_context(error(HT_BAD_BUNDLE, format, a, b), kWhat);
}

// Index of `rows` by name, which must be unique.
template <typename Rows>
Status index_names(const Rows& rows, const char* what, NameIndex* index) {
  index->reserve(rows.size());
  for (const auto& row : rows) {
    if (!index->emplace(row.name, static_cast<uint32_t>(index->size())).second) {
      return bad("%s \"%s\" twice", what, row.name);
    }
  }
  return Status();
}

template <typename Rows>
Status check_unique(const Rows& rows, const char* what) {
  NameIndex ignored;
  return index_names(rows, what, &ignored);
}

int find(const NameIndex& index, std::string_view name) {
  const auto at = index.find(name);
  return at == index.end() ? -1 : static_cast<int>(at->second);
}

Status check_entry(const Manifest& m, const ManifestEntry& entry) {
  HT_RETURN_IF_ERROR(check_unique(entry.inputs, "input"));
  HT_RETURN_IF_ERROR(check_unique(entry.syms, "symbol"));
  for (const ManifestSym& sym : entry.syms) {
    if (sym.lo > sym.hi) return bad("entry \"%s\": symbol \"%s\" has an empty range", entry.name, sym.name);
  }
  if (entry.plans.size() != m.targets.size()) return bad("entry \"%s\": not one plan for each target", entry.name);
  for (const ManifestTarget& target : m.targets) {
    const auto found = std::find_if(entry.plans.begin(), entry.plans.end(),
                                    [&](const ManifestPlan& p) { return std::strcmp(p.target, target.name) == 0; });
    if (found == entry.plans.end()) return bad("entry \"%s\": no plan for target %s", entry.name, target.name);
    if (std::strncmp(found->member, "plans/", 6) != 0 || m.find_member(found->member) == nullptr) {
      return bad("entry \"%s\": no member \"%s\"", entry.name, found->member);
    }
  }
  return Status();
}

Status check_arrays(const Manifest& m) {
  for (size_t i = 1; i < m.constants.size(); ++i) {
    if (std::strcmp(m.constants[i - 1].name, m.constants[i].name) >= 0) {
      return bad("constant \"%s\" is out of order%s", m.constants[i].name);
    }
  }
  for (const ManifestArray& c : m.constants) {
    if (m.find_member(c.file) == nullptr) return bad("constant \"%s\": no member \"%s\"", c.name, c.file);
  }
  for (const ManifestArray& s : m.states) {
    if (s.init == nullptr) continue;
    const int at = m.find_constant(s.init);
    if (at < 0) return bad("state \"%s\": no constant \"%s\"", s.name, s.init);
    const ManifestArray& c = m.constants[static_cast<size_t>(at)];
    if (c.dtype != s.dtype || c.nbytes != s.nbytes) {
      return bad("state \"%s\" and constant \"%s\" differ in dtype or size", s.name, s.init);
    }
  }
  return Status();
}

Status check_manifest(const Manifest& m) {
  if (m.entries.empty()) return bad("%sno entry%s", "");
  if (m.targets.empty()) return bad("%sno target%s", "");
  HT_RETURN_IF_ERROR(check_unique(m.entries, "entry"));
  HT_RETURN_IF_ERROR(check_unique(m.targets, "target"));
  for (const ManifestMember& member : m.members) {
    const std::string_view digest = member.sha256;
    if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
      return bad("member \"%s\": \"%s\" is no SHA-256", member.name, member.sha256);
    }
  }
  for (const ManifestTarget& target : m.targets) {
    if (target.library == nullptr) continue;
    if (std::strncmp(target.library, "lib/", 4) != 0 || m.find_member(target.library) == nullptr) {
      return bad("target %s: no member \"%s\"", target.name, target.library);
    }
  }
  for (const ManifestEntry& entry : m.entries) HT_RETURN_IF_ERROR(check_entry(m, entry));
  return check_arrays(m);
}

}  // namespace

int Manifest::find_constant(std::string_view name) const { return find(constant_index, name); }
int Manifest::find_state(std::string_view name) const { return find(state_index, name); }

const ManifestMember* Manifest::find_member(std::string_view name) const {
  const int at = find(member_index, name);
  return at < 0 ? nullptr : &members[static_cast<size_t>(at)];
}

Status parse_manifest(std::string_view text, Manifest* manifest) {
  HT_RETURN_IF_ERROR(check_format(text));
  manifest->texts = std::make_shared<TextPool>(text.size());
  JsonReader json(text, manifest->texts.get(), kWhat);
  parse_top(&json, manifest);
  HT_RETURN_IF_ERROR(json.finish());
  HT_RETURN_IF_ERROR(index_names(manifest->constants, "constant", &manifest->constant_index));
  HT_RETURN_IF_ERROR(index_names(manifest->states, "state", &manifest->state_index));
  HT_RETURN_IF_ERROR(index_names(manifest->members, "member", &manifest->member_index));
  return check_manifest(*manifest);
}

std::string signed_bytes(std::string_view text) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, kWhat);
  json.begin_object();
  while (const char* key = json.next_key()) {
    const std::string_view value = json.skip();
    if (std::strcmp(key, "signature") != 0) continue;
    const size_t at = static_cast<size_t>(value.data() - text.data());
    return std::string(text.substr(0, at)) + "null" + std::string(text.substr(at + value.size()));
  }
  return std::string(text);
}

}  // namespace hardtack::rt
