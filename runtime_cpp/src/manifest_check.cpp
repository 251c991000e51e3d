#include "manifest_check.h"

#include <algorithm>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

Status bad(const char* format, const char* a, const char* b = "") __attribute__((format(printf, 1, 0)));
Status bad(const char* format, const char* a, const char* b) {
  return in_context(error(HT_BAD_BUNDLE, format, a, b), "manifest.json");
}

// Index of `rows` by name, which must be unique.
template <typename Rows>
Status index_names(const Rows& rows, const char* what, NameIndex* index) {
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

KnownDims known_dims(const std::vector<ManifestDim>& dims) {
  KnownDims known;
  for (const ManifestDim& dim : dims) known.push_back(dim.fixed ? std::optional<int64_t>(dim.value) : std::nullopt);
  return known;
}

Status check_entry(const Manifest& m, const ManifestEntry& entry) {
  HT_RETURN_IF_ERROR(check_unique(entry.inputs, "input"));
  for (const ManifestTensor& output : entry.outputs) {
    Status row_major = check_row_major(output.name, known_dims(output.shape), known_dims(output.strides));
    HT_RETURN_IF_ERROR(in_context(std::move(row_major), "entry \"" + std::string(entry.name) + "\""));
  }
  HT_RETURN_IF_ERROR(check_unique(entry.syms, "symbol"));
  for (const ManifestSym& sym : entry.syms) {
    if (sym.lo > sym.hi) return bad("entry \"%s\": symbol \"%s\" has an empty range", entry.name, sym.name);
  }
  if (entry.plans.size() != m.targets.size()) return bad("entry \"%s\": not one plan for each target", entry.name);
  for (const ManifestTarget& target : m.targets) {
    const ManifestPlan* found = entry.find_plan(target.name);
    if (found == nullptr) return bad("entry \"%s\": no plan for target %s", entry.name, target.name);
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
  bool external_used = !m.has_external;
  for (const ManifestArray& c : m.constants) {
    const bool outside = m.has_external && std::strcmp(c.file, m.external.name) == 0;
    external_used = external_used || outside;
    if (!outside && m.find_member(c.file) == nullptr) {
      return bad("constant \"%s\": no member \"%s\"", c.name, c.file);
    }
  }
  if (!external_used) return bad("the external file \"%s\" holds no constant%s", m.external.name);
  for (const ManifestArray& s : m.states) {
    if (s.init == nullptr) continue;
    const int at = m.find_constant(s.init);
    if (at < 0) return bad("state \"%s\": no constant \"%s\"", s.name, s.init);
    const ManifestArray& c = m.constants[static_cast<size_t>(at)];
    if (c.dtype != part_dtype(s.dtype) || c.nbytes != s.nbytes) {
      return bad("state \"%s\" and constant \"%s\" differ in dtype or size", s.name, s.init);
    }
  }
  return Status();
}

// Whether a view lies inside `numel` elements.
bool view_inside(const ManifestView& view, int64_t numel) {
  int64_t lowest = view.offset, highest = view.offset;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    if (view.shape[d] == 0) return true;
  }
  for (size_t d = 0; d < view.shape.size(); ++d) {
    int64_t step = 0;
    if (!checked_mul(view.shape[d] - 1, view.strides[d], &step)) return false;
    int64_t* end = step < 0 ? &lowest : &highest;
    if (!checked_add(*end, step, end)) return false;
  }
  return lowest >= 0 && highest < numel;
}

int64_t numel_of(const ManifestView& view) {
  int64_t numel = 1;
  for (const int64_t size : view.shape) numel *= size;  // bounded by parse_shape
  return numel;
}

Status check_recipe(const ManifestArray& c, const ManifestRecipe& recipe, const ManifestParameter& source) {
  if (source.dtype != c.dtype)
    return bad("constant \"%s\" has another dtype than its source \"%s\"", c.name, source.name);
  int64_t numel = source.nbytes / itemsize(c.dtype);
  for (const ManifestView& view : recipe.views) {
    if (!view_inside(view, numel))
      return bad("constant \"%s\": a view of its recipe leaves \"%s\"", c.name, source.name);
    numel = numel_of(view);
  }
  int64_t wanted = c.nbytes / itemsize(c.dtype);
  if (recipe.joined) {
    if (!view_inside(recipe.into, wanted))
      return bad("constant \"%s\": what is made of \"%s\" goes beyond it", c.name, source.name);
    wanted = numel_of(recipe.into);
  }
  if (recipe.packed || numel == wanted) return Status();
  return bad("constant \"%s\" has another size than its recipe makes of \"%s\"", c.name, source.name);
}

Status check_parameters(const Manifest& m) {
  for (size_t i = 1; i < m.parameters.size(); ++i) {
    if (std::strcmp(m.parameters[i - 1].name, m.parameters[i].name) >= 0) {
      return bad("parameter \"%s\" is out of order%s", m.parameters[i].name);
    }
  }
  NameIndex index;
  HT_RETURN_IF_ERROR(index_names(m.parameters, "parameter", &index));
  for (const ManifestArray& c : m.constants) {
    for (const ManifestRecipe& recipe : c.recipe) {
      const int at = find(index, recipe.source);
      if (at < 0) return bad("constant \"%s\": no parameter \"%s\"", c.name, recipe.source);
      HT_RETURN_IF_ERROR(check_recipe(c, recipe, m.parameters[static_cast<size_t>(at)]));
    }
  }
  return Status();
}

Status check_digest(const ManifestMember& member) {
  const std::string_view digest = member.sha256;
  if (digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == std::string_view::npos) return Status();
  return bad("member \"%s\": \"%s\" is no SHA-256", member.name, member.sha256);
}

Status check_external(const Manifest& m) {
  if (!m.has_external) return Status();
  const std::string_view name = m.external.name, suffix = ".safetensors";
  const bool good = name.size() >= suffix.size() && name.size() <= 255 && name.find('/') == std::string_view::npos &&
                    name.substr(name.size() - suffix.size()) == suffix;
  if (!good) return bad("\"%s\" cannot name an external .safetensors file%s", m.external.name);
  if (m.find_member(name) != nullptr)
    return bad("the external file \"%s\" has the name of a member%s", m.external.name);
  return check_digest(m.external);
}

Status check_gpu_target(const ManifestTarget& target) {
  const bool on_cuda = std::strcmp(target.device, "cuda") == 0;
  if (!on_cuda && std::strcmp(target.device, "hip") != 0) return Status();
  bool good = target.library == nullptr && target.requirements.size() == 1;
  int arch = 0;
  good = good && (on_cuda ? parse_arch(target.requirements[0], &arch) : is_amd_arch(target.requirements[0]));
  if (good) return Status();
  return bad(on_cuda ? "target %s is for cuda: it requires one sm_<number> and has no library%s"
                     : "target %s is for hip: it requires one gfx<number> and has no library%s",
             target.name);
}

template <typename Rows>
Status check_dtypes_of(const Manifest& m, const Rows& rows) {
  for (const auto& row : rows) {
    if (dtype_since(row.dtype) > m.format)
      return in_context(newer_dtype(row.name, row.dtype, m.format), "manifest.json");
  }
  return Status();
}

Status check_dtypes(const Manifest& m) {
  for (const ManifestEntry& entry : m.entries) {
    HT_RETURN_IF_ERROR(check_dtypes_of(m, entry.inputs));
    HT_RETURN_IF_ERROR(check_dtypes_of(m, entry.outputs));
  }
  HT_RETURN_IF_ERROR(check_dtypes_of(m, m.states));
  HT_RETURN_IF_ERROR(check_dtypes_of(m, m.constants));
  return check_dtypes_of(m, m.parameters);
}

Status check_user_kernels(const Manifest& m) {
  for (size_t i = 1; i < m.user_kernels.size(); ++i) {
    if (std::strcmp(m.user_kernels[i - 1].op, m.user_kernels[i].op) >= 0) {
      return bad("the kernel of op \"%s\" is out of order%s", m.user_kernels[i].op);
    }
  }
  return Status();
}

Status check_rows(const Manifest& m) {
  if (m.entries.empty()) return bad("%sno entry%s", "");
  if (m.targets.empty()) return bad("%sno target%s", "");
  HT_RETURN_IF_ERROR(check_dtypes(m));
  HT_RETURN_IF_ERROR(check_unique(m.entries, "entry"));
  for (const ManifestMember& member : m.members) HT_RETURN_IF_ERROR(check_digest(member));
  HT_RETURN_IF_ERROR(check_external(m));
  for (const ManifestTarget& target : m.targets) {
    HT_RETURN_IF_ERROR(check_gpu_target(target));
    if (target.library == nullptr) continue;
    if (std::strncmp(target.library, "lib/", 4) != 0 || m.find_member(target.library) == nullptr) {
      return bad("target %s: no member \"%s\"", target.name, target.library);
    }
  }
  for (const ManifestEntry& entry : m.entries) HT_RETURN_IF_ERROR(check_entry(m, entry));
  HT_RETURN_IF_ERROR(check_arrays(m));
  HT_RETURN_IF_ERROR(check_user_kernels(m));
  return check_parameters(m);
}

}  // namespace

Status newer_dtype(const char* name, DType dtype, int64_t format) {
  return error(HT_BAD_BUNDLE, "\"%s\" is %s, which came with format %lld; the manifest's is %lld", name,
               dtype_name(dtype), static_cast<long long>(dtype_since(dtype)), static_cast<long long>(format));
}

int Manifest::find_constant(std::string_view name) const { return find(constant_index, name); }
int Manifest::find_state(std::string_view name) const { return find(state_index, name); }
int Manifest::find_target(std::string_view name) const { return find(target_index, name); }

const ManifestPlan* ManifestEntry::find_plan(std::string_view target) const {
  const auto at = std::lower_bound(plans.begin(), plans.end(), target,
                                   [](const ManifestPlan& p, std::string_view wanted) { return p.target < wanted; });
  return at != plans.end() && at->target == target ? &*at : nullptr;
}

const ManifestMember* Manifest::find_member(std::string_view name) const {
  const int at = find(member_index, name);
  return at < 0 ? nullptr : &members[static_cast<size_t>(at)];
}

bool Manifest::names_host_kernel(std::string_view function) const {
  return std::any_of(user_kernels.begin(), user_kernels.end(),
                     [&](const ManifestUserKernel& k) { return k.host && k.function == function; });
}

Status check_row_major(const char* output, const KnownDims& shape, const KnownDims& strides) {
  int64_t step = 1;  // -1: more than a stride can be
  for (size_t d = shape.size(); d-- > 0;) {
    if (strides[d] && *strides[d] != step) {
      return error(HT_BAD_BUNDLE,
                   "output \"%s\" has the stride %lld in dimension %zu, expected %lld: outputs are dense and row-major",
                   output, static_cast<long long>(*strides[d]), d, static_cast<long long>(step));
    }
    if (!shape[d]) break;
    if (step < 0 || !checked_mul(step, *shape[d], &step)) step = -1;
  }
  return Status();
}

Status check_manifest(Manifest* m) {
  HT_RETURN_IF_ERROR(index_names(m->constants, "constant", &m->constant_index));
  HT_RETURN_IF_ERROR(index_names(m->states, "state", &m->state_index));
  HT_RETURN_IF_ERROR(index_names(m->members, "member", &m->member_index));
  HT_RETURN_IF_ERROR(index_names(m->targets, "target", &m->target_index));
  return check_rows(*m);
}

}  // namespace hardtack::rt
