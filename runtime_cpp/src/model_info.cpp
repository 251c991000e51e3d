#include <algorithm>
#include <cstring>

#include "model.h"

namespace hardtack::rt {
namespace {

class InfoBuilder {
 public:
  InfoBuilder(const Bundle& bundle, const Machine& machine, const WeightBytes* bytes, ModelInfo* info)
      : bundle_(bundle), machine_(machine), bytes_(bytes), info_(*info) {}

  void entry(const ManifestEntry& entry, const Program& program) {
    const Plan& plan = program.plan;
    Interval arena = plan.exprs.bounds(plan.arena);
    for (const Plan::Read& read : plan.reads) {
      arena.lo = std::max(arena.lo, plan.exprs.bounds(read.arena).lo);
      arena.hi = std::max(arena.hi, plan.exprs.bounds(read.arena).hi);
    }
    ht_entry_info e = {};
    e.name = entry.name;
    e.num_inputs = entry.inputs.size();
    e.num_outputs = entry.outputs.size();
    e.num_syms = plan.syms.size();
    e.num_guards = plan.guards.size();
    e.in_tree = entry.in_tree.c_str();
    e.out_tree = entry.out_tree.c_str();
    e.num_instructions = plan.instrs.size();
    e.num_kernels = plan.kernels.size();
    e.arena_lo = arena.lo < 0 ? 0 : arena.lo;
    e.arena_hi = arena.hi;
    e.no_graph = text(no_graph_reason(program));
    info_.entries.push_back(e);
    info_.inputs.push_back(tensors(plan, entry.inputs, plan.inputs));
    info_.outputs.push_back(tensors(plan, entry.outputs, plan.outputs));
    info_.syms.emplace_back();
    for (const PlanSym& s : plan.syms) {
      info_.syms.back().push_back({s.name, s.lo, s.hi, s.input == kNone ? -1 : static_cast<int32_t>(s.input), s.dim});
    }
  }

  ht_array_info array(const ManifestArray& a) const {
    ht_array_info out = {};
    out.name = a.name;
    out.dtype_name = dtype_name(a.dtype);
    out.dtype = dl_dtype(a.dtype);
    out.ndim = static_cast<int32_t>(a.shape.size());
    out.shape = a.shape.data();
    out.nbytes = static_cast<uint64_t>(a.nbytes);
    out.file = a.file;
    out.tensor = a.file == nullptr ? a.init : a.tensor;
    return out;
  }

  void constants() {
    const std::vector<ManifestArray>& all = bundle_.manifest().constants;
    for (size_t i = 0; i < all.size(); ++i) {
      info_.constants.push_back(array(all[i]));
      if (bytes_ != nullptr) info_.constants.back().data = bytes_->at(bundle_.constant_place(i));
    }
  }

  void target(const ManifestTarget& t) {
    ht_target_info out = {};
    out.name = t.name;
    out.device = t.device;
    out.library = t.library;
    out.missing = text(missing_features(t, machine_));
    const bool on_cpu = std::strcmp(t.device, "cpu") == 0 && t.library != nullptr;
    out.runnable = (on_cpu || is_for(t, machine_)) && out.missing[0] == '\0' ? 1 : 0;
    out.num_requires = t.requirements.size();
    out.requirements = t.requirements.data();
    info_.targets.push_back(out);
  }

  void members() {
    const std::vector<Member>& all = bundle_.members();
    for (size_t i = 0; i < all.size(); ++i) {
      const char* digest = i == 0 ? "" : bundle_.manifest().members[i - 1].sha256;
      info_.members.push_back({all[i].name.c_str(), all[i].nbytes, all[i].data_offset, digest});
    }
  }

 private:
  const char* text(std::string value) {
    info_.texts.push_back(std::move(value));
    return info_.texts.back().c_str();
  }

  std::vector<ht_tensor_info> tensors(const Plan& plan, const std::vector<ManifestTensor>& declared,
                                      const std::vector<uint32_t>& values) {
    std::vector<ht_tensor_info> out;
    for (size_t i = 0; i < declared.size(); ++i) {
      const Value& v = plan.values[values[i]];
      ht_tensor_info t = {};
      t.name = declared[i].name;
      t.dtype_name = dtype_name(port_dtype(v));
      t.dtype = dl_dtype(port_dtype(v));
      t.ndim = static_cast<int32_t>(port_ndim(v));
      t.shape = dims(plan, declared[i].shape, plan.shape(v), 1);
      t.strides = dims(plan, declared[i].strides, plan.strides(v), v.is_complex ? 2 : 1);
      t.written = declared[i].written ? 1 : 0;
      out.push_back(t);
    }
    return out;
  }

  // `parts`: how many of what the plan's expressions count are one.
  const ht_dim_info* dims(const Plan& plan, const std::vector<ManifestDim>& declared, const uint32_t* exprs,
                          int64_t parts) {
    std::vector<ht_dim_info> out;
    for (size_t d = 0; d < declared.size(); ++d) {
      const Interval b = plan.exprs.bounds(exprs[d]);
      const int64_t lo = b.lo < 0 ? 0 : b.lo / parts, hi = b.hi == kNoUpperBound ? b.hi : b.hi / parts;
      out.push_back({lo, hi, declared[d].fixed ? text(std::to_string(lo)) : declared[d].text});
    }
    info_.dims.push_back(std::move(out));
    return info_.dims.back().data();
  }

  const Bundle& bundle_;
  const Machine& machine_;
  const WeightBytes* bytes_;
  ModelInfo& info_;
};

}  // namespace

void build_info(const Bundle& bundle, const ManifestTarget& target, const std::vector<Program>& programs,
                const Machine& machine, const WeightBytes* bytes, bool trusted, ModelInfo* info) {
  const Manifest& manifest = bundle.manifest();
  InfoBuilder builder(bundle, machine, bytes, info);
  for (size_t i = 0; i < programs.size(); ++i) builder.entry(manifest.entries[i], programs[i]);
  for (const ManifestArray& state : manifest.states) info->states.push_back(builder.array(state));
  for (const ManifestTarget& t : manifest.targets) builder.target(t);
  builder.constants();
  builder.members();
  ht_model_info& m = info->model;
  m.manifest = bundle.manifest_text().c_str();
  m.manifest_nbytes = bundle.manifest_text().size();
  m.target = target.name;
  m.device = target.device;
  m.file_nbytes = bundle.file_nbytes();
  m.weights_nbytes = bundle.weights_nbytes();
  m.external_weights = manifest.has_external ? manifest.external.name : nullptr;
  m.num_entries = manifest.entries.size();
  m.num_targets = manifest.targets.size();
  m.num_states = manifest.states.size();
  m.num_constants = manifest.constants.size();
  m.num_members = bundle.members().size();
  m.num_producers = manifest.producer.size();
  m.num_user_kernels = manifest.user_kernels.size();
  m.has_signature = manifest.signature.present ? 1 : 0;
  m.trusted = trusted ? 1 : 0;
  m.signed_model = manifest.signature.model;
  m.signed_version = manifest.signature.version;
}

}  // namespace hardtack::rt
