#include "manifest.h"

#include <algorithm>
#include <cstring>

#include "checked.h"
#include "json_parts.h"
#include "manifest_check.h"
#include "manifest_signature.h"

namespace hardtack::rt {
namespace {

constexpr int64_t kUserKernelsFormat = 3;
constexpr int64_t kFirstFormat = 1, kLastFormat = kWrittenFormat;
constexpr const char* kWhat = "manifest.json";
constexpr size_t kMaxRank = 64;
constexpr const char* kTooManyDims = "more than 64 dimensions";

std::vector<ManifestDim> parse_dims(JsonReader* json) {
  std::vector<ManifestDim> dims;
  json->begin_array();
  while (json->next_item()) {
    if (dims.size() == kMaxRank) json->fail(kTooManyDims);
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

std::vector<ManifestTensor> parse_tensors(JsonReader* json, bool may_be_written) {
  std::vector<ManifestTensor> tensors;
  json->begin_array();
  while (json->next_item()) {
    ManifestTensor t;
    json->begin_object();
    json->key("dtype");
    t.dtype = parse_port_dtype(json);
    json->key("name");
    t.name = json->string();
    json->key("shape");
    t.shape = parse_dims(json);
    json->key("strides");
    t.strides = parse_dims(json);
    if (may_be_written) {
      json->key("written");
      t.written = json->boolean();
    }
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

ManifestEntry parse_entry(JsonReader* json, int64_t format) {
  ManifestEntry entry;
  json->begin_object();
  json->key("in_tree");
  entry.in_tree = json->skip();
  json->key("inputs");
  entry.inputs = parse_tensors(json, format >= kWrittenFormat);
  json->key("name");
  entry.name = json->string();
  json->key("out_tree");
  entry.out_tree = json->skip();
  json->key("outputs");
  entry.outputs = parse_tensors(json, false);
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

// Reads sizes; the bytes of a tensor of them.
int64_t parse_shape(JsonReader* json, DType dtype, std::vector<int64_t>* shape) {
  int64_t nbytes = itemsize(dtype);
  json->begin_array();
  while (json->next_item()) {
    if (shape->size() == kMaxRank) json->fail(kTooManyDims);
    const int64_t size = json->integer();
    shape->push_back(size);
    if (size < 0 || !checked_mul(nbytes, size, &nbytes) || nbytes >= kMaxNbytes) {
      json->fail("a bad shape");
      nbytes = 0;
    }
  }
  return nbytes;
}

ManifestView parse_view(JsonReader* json, DType dtype) {
  ManifestView view;
  json->begin_object();
  json->key("offset");
  view.offset = json->integer();
  json->key("shape");
  parse_shape(json, dtype, &view.shape);
  json->key("strides");
  json->begin_array();
  while (json->next_item()) {
    if (view.strides.size() == kMaxRank) json->fail(kTooManyDims);
    view.strides.push_back(json->integer());
  }
  json->end_object();
  if (view.offset < 0 || view.shape.size() != view.strides.size()) json->fail("a bad view");
  return view;
}

ManifestRecipe parse_part(JsonReader* json, DType dtype) {
  ManifestRecipe recipe;
  json->begin_object();
  json->key("into");
  recipe.joined = !json->null();
  if (recipe.joined) recipe.into = parse_view(json, dtype);
  json->key("packing");
  recipe.packed = !json->null();
  if (recipe.packed) {
    json->begin_object();
    json->key("kind");
    json->string();
    json->key("params");
    json->begin_array();
    while (json->next_item()) json->integer();
    json->end_object();
  }
  json->key("source");
  recipe.source = json->string();
  json->key("views");
  json->begin_array();
  while (json->next_item()) recipe.views.push_back(parse_view(json, dtype));
  json->end_object();
  return recipe;
}

std::vector<ManifestRecipe> parse_recipe(JsonReader* json, DType dtype) {
  std::vector<ManifestRecipe> parts;
  if (json->null()) return parts;
  json->begin_array();
  while (json->next_item()) parts.push_back(parse_part(json, dtype));
  if (parts.empty()) json->fail("a recipe of nothing");
  return parts;
}

ManifestParameter parse_parameter(JsonReader* json) {
  ManifestParameter parameter;
  std::string_view last;
  json->begin_object();
  json->key("aliases");
  json->begin_array();
  for (bool first = true; json->next_item(); first = false) {
    const std::string_view alias = json->string_view();
    if (!first && alias <= last) json->fail("aliases out of order");
    last = alias;
  }
  json->key("dtype");
  parameter.dtype = parse_dtype(json);
  json->key("name");
  parameter.name = json->string();
  json->key("shape");
  std::vector<int64_t> shape;
  parameter.nbytes = parse_shape(json, parameter.dtype, &shape);
  json->end_object();
  return parameter;
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
  json->key("recipe");
  constant.recipe = parse_recipe(json, constant.dtype);
  json->key("shape");
  constant.nbytes = parse_shape(json, constant.dtype, &constant.shape);
  json->key("tensor");
  constant.tensor = json->string();
  json->end_object();
  return constant;
}

ManifestArray parse_state(JsonReader* json) {
  ManifestArray state;
  json->begin_object();
  json->key("dtype");
  state.dtype = parse_port_dtype(json);
  json->key("init");
  if (!json->null()) state.init = json->string();
  json->key("name");
  state.name = json->string();
  json->key("shape");
  state.nbytes = parse_shape(json, state.dtype, &state.shape);
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

ManifestUserKernel parse_user_kernel(JsonReader* json) {
  ManifestUserKernel kernel;
  json->begin_object();
  json->key("function");
  kernel.function = json->string();
  json->key("host");
  kernel.host = json->boolean();
  json->key("op");
  kernel.op = json->string();
  json->end_object();
  return kernel;
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

// A document of another format may differ anywhere, so its number is looked up first.
Status check_format(std::string_view text, int64_t* format) {
  TextPool pool(text.size());
  JsonReader json(text, &pool, kWhat);
  *format = -1;
  json.begin_object();
  while (const char* key = json.next_key()) {
    if (std::strcmp(key, "format") == 0)
      *format = json.integer();
    else
      json.skip();
  }
  HT_RETURN_IF_ERROR(json.finish());
  if (*format >= kFirstFormat && *format <= kLastFormat) return Status();
  return error(HT_BAD_BUNDLE, "this bundle has format %lld; this version of Hardtack (%s) reads formats %lld to %lld",
               static_cast<long long>(*format), ht_version(), static_cast<long long>(kFirstFormat),
               static_cast<long long>(kLastFormat));
}

void parse_top(JsonReader* json, Manifest* m) {
  json->begin_object();
  json->key("constants");
  json->begin_array();
  while (json->next_item()) m->constants.push_back(parse_constant(json));
  json->key("entries");
  json->begin_array();
  while (json->next_item()) m->entries.push_back(parse_entry(json, m->format));
  json->key("external");
  m->has_external = !json->null();
  if (m->has_external) m->external = parse_member(json);
  json->key("format");
  m->format = json->integer();
  json->key("members");
  json->begin_array();
  while (json->next_item()) m->members.push_back(parse_member(json));
  json->key("numerics");
  m->numerics = parse_texts(json);
  json->key("parameters");
  json->begin_array();
  while (json->next_item()) m->parameters.push_back(parse_parameter(json));
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
  if (m->format >= kUserKernelsFormat) {
    json->key("user_kernels");
    json->begin_array();
    while (json->next_item()) m->user_kernels.push_back(parse_user_kernel(json));
  }
  json->end_object();
}

}  // namespace

bool parse_arch(std::string_view text, int* arch) {
  if ((text.size() != 5 && text.size() != 6) || text.substr(0, 3) != "sm_") return false;
  *arch = 0;
  for (const char c : text.substr(3)) {
    if (c < '0' || c > '9') return false;
    *arch = *arch * 10 + (c - '0');
  }
  return true;
}

bool is_amd_arch(std::string_view text) {
  return (text.size() == 6 || text.size() == 7) && text.substr(0, 3) == "gfx" &&
         text.find_first_not_of("0123456789abcdef", 3) == std::string_view::npos;
}

Status parse_manifest(std::string_view text, Manifest* manifest) {
  HT_RETURN_IF_ERROR(check_format(text, &manifest->format));
  manifest->texts = std::make_shared<TextPool>(text.size());
  JsonReader json(text, manifest->texts.get(), kWhat);
  parse_top(&json, manifest);
  HT_RETURN_IF_ERROR(json.finish());
  return check_manifest(manifest);
}

}  // namespace hardtack::rt
