#include <array>
#include <cstdio>
#include <hardtack/hardtack.hpp>

#include "commands.h"
#include "text.h"

namespace hardtack::tools {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string shape_text(const ht_array_info& a) {
  std::string out = std::string(a.dtype_name) + " [";
  for (int32_t d = 0; d < a.ndim; ++d) out += (d == 0 ? "" : ", ") + std::to_string(a.shape[d]);
  return out + "]";
}

void print(const char* title, const Rows& rows) {
  if (!rows.empty()) std::printf("%s\n%s\n", bold(title).c_str(), table(rows).c_str());
}

std::string arena_text(const ht_entry_info& e) {
  if (e.arena_hi == INT64_MAX) return "at least " + bytes_text(static_cast<uint64_t>(e.arena_lo));
  if (e.arena_lo == e.arena_hi) return bytes_text(static_cast<uint64_t>(e.arena_hi));
  return bytes_text(static_cast<uint64_t>(e.arena_lo)) + " to " + bytes_text(static_cast<uint64_t>(e.arena_hi));
}

void print_entry(const Model& model, size_t index) {
  const ht_entry_info& e = *model.entry(index);
  Rows rows;
  for (size_t i = 0; i < e.num_inputs; ++i) {
    rows.push_back({i == 0 ? "inputs" : "", model.input(index, i)->name, tensor_text(*model.input(index, i))});
  }
  for (size_t i = 0; i < e.num_outputs; ++i) {
    rows.push_back({i == 0 ? "outputs" : "", model.output(index, i)->name, tensor_text(*model.output(index, i))});
  }
  for (size_t i = 0; i < e.num_syms; ++i) {
    const ht_sym_info& s = *model.sym(index, i);
    rows.push_back({i == 0 ? "sizes" : "", s.name, range_text(s.lo, s.hi)});
  }
  for (size_t i = 0; i < e.num_guards; ++i) {
    rows.push_back({i == 0 ? "requires" : "", ht_model_guard(model.get(), index, i), ""});
  }
  rows.push_back({"plan", std::to_string(e.num_instructions) + " steps",
                  std::to_string(e.num_kernels) + " kernels, arena " + arena_text(e)});
  if (*e.no_graph != '\0') rows.push_back({"CUDA graph", "no", e.no_graph});
  print(("entry " + std::string(e.name)).c_str(), rows);
}

void print_text(const Model& model, const Args& args) {
  const ht_model_info& info = model.info();
  Rows about = {{"file", args.operands[0], bytes_text(info.file_nbytes)}};
  for (size_t i = 0; i < info.num_producers; ++i) {
    const char* version = "";
    const char* name = ht_model_producer(model.get(), i, &version);
    about.push_back({i == 0 ? "made by" : "", name, version});
  }
  for (size_t i = 0; i < info.num_user_kernels; ++i) {
    const char* function = "";
    int32_t host = 0;
    const std::string op = ht_model_user_kernel(model.get(), i, &function, &host);
    const std::string where = host != 0 ? " of the program that loads it" : ", in the bundle";
    about.push_back({i == 0 ? "users' kernels" : "", op, function + where});
  }
  about.push_back({"weights", std::to_string(info.num_constants) + " constants", bytes_text(info.weights_nbytes)});
  if (info.external_weights != nullptr) about.push_back({"", "outside, in " + std::string(info.external_weights), ""});
  const std::string release = info.signed_model == nullptr
                                  ? std::string()
                                  : ", as version " + std::to_string(info.signed_version) + " of " + info.signed_model;
  about.push_back({"signed", info.has_signature != 0 ? "yes" + release + " (not checked here)" : "no"});
  print("bundle", about);
  Rows targets;
  for (size_t i = 0; i < info.num_targets; ++i) {
    const ht_target_info& t = *model.target(i);
    const bool has_device = std::string(t.device) == "cpu" || std::string(t.device) == "cuda";
    const std::string lacks = !has_device          ? "no device " + std::string(t.device) + " in this Hardtack"
                              : *t.missing == '\0' ? "does not run here"
                                                   : "lacks " + std::string(t.missing);
    targets.push_back(
        {t.name, t.runnable != 0 ? "runs here" : lacks, std::string(t.name) == info.target ? "(shown below)" : ""});
  }
  print("targets", targets);
  for (size_t i = 0; i < info.num_entries; ++i) print_entry(model, i);
  Rows states, constants, members;
  for (size_t i = 0; i < info.num_states; ++i) {
    const ht_array_info& s = *model.state(i);
    states.push_back({s.name, shape_text(s), s.tensor == nullptr ? "zeros" : "from " + std::string(s.tensor)});
  }
  print("states", states);
  for (size_t i = 0; args.has("--constants") && i < info.num_constants; ++i) {
    const ht_array_info& c = *model.constant(i);
    constants.push_back({c.name, shape_text(c), bytes_text(c.nbytes)});
  }
  print("constants", constants);
  for (size_t i = 0; args.has("--members") && i < info.num_members; ++i) {
    const ht_member_info& m = *ht_model_member(model.get(), i);
    members.push_back({m.name, bytes_text(m.nbytes), dim(std::string(m.sha256).substr(0, 16))});
  }
  print("members", members);
}

bool parse_key(const std::string& text, uint8_t key[32]) {
  if (text.size() != 64 || text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return false;
  for (size_t i = 0; i < 32; ++i) key[i] = static_cast<uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return true;
}

// The manifest as it is, and what this machine adds to it.
void print_json(const Model& model) {
  const ht_model_info& info = model.info();
  JsonWriter json;
  json.open('{').key("target").text(info.target).key("file_nbytes").number(info.file_nbytes);
  json.key("weights_nbytes").number(info.weights_nbytes).key("runnable_targets").open('[');
  for (size_t i = 0; i < info.num_targets; ++i) {
    if (model.target(i)->runnable != 0) json.text(model.target(i)->name);
  }
  json.close(']').key("plans").open('[');
  for (size_t i = 0; i < info.num_entries; ++i) {
    const ht_entry_info& e = *model.entry(i);
    json.open('{').key("entry").text(e.name).key("instructions").number(uint64_t{e.num_instructions});
    json.key("kernels").number(uint64_t{e.num_kernels}).key("arena_lo").number(e.arena_lo).key("arena_hi");
    (e.arena_hi == INT64_MAX ? json.null() : json.number(e.arena_hi)).close('}');
  }
  json.close(']').key("manifest").raw(info.manifest).close('}');
  std::printf("%s\n", json.str().c_str());
}

}  // namespace

int inspect(const Args& args) {
  ht_load_options options = ht_load_options_default();
  const std::string target = args.get("--target");
  options.inspect_only = 1;
  options.target = target.empty() ? nullptr : target.c_str();
  const auto model = Model::load(args.operands[0], &options);
  if (!model.ok()) return bad(model.status().message());
  if (args.has("--json"))
    print_json(*model);
  else
    print_text(*model, args);
  return kGood;
}

int verify(const Args& args) {
  ht_load_options options = ht_load_options_default();
  std::vector<std::array<uint8_t, 32>> keys;
  for (const std::string& text : args.all("--key")) {
    keys.emplace_back();
    if (!parse_key(text, keys.back().data()))
      return wrong_use("--key \"" + text + "\": expected 64 hexadecimal digits");
  }
  options.require_trusted_signature = keys.empty() ? 0 : 1;
  options.trusted_keys = reinterpret_cast<const uint8_t(*)[32]>(keys.data());
  options.num_trusted_keys = keys.size();
  const std::string weights = args.get("--weights"), file = args.get("--trusted-keys"),
                    signed_model = args.get("--signed-model");
  options.weights_path = weights.empty() ? nullptr : weights.c_str();
  options.trusted_keys_path = file.empty() ? nullptr : file.c_str();
  options.signed_model = signed_model.empty() ? nullptr : signed_model.c_str();
  if (!signed_model.empty() && file.empty() && keys.empty())
    return wrong_use("--signed-model is checked against a trusted signature: give --key or --trusted-keys, too");
  ht_verify_report report = {};
  report.struct_size = sizeof report;
  const Status status(ht_verify_file(args.operands[0].c_str(), &options, &report));
  if (args.has("--json")) {
    JsonWriter json;
    json.open('{').key("ok").boolean(status.ok()).key("code").text(ht_code_name(status.code()));
    json.key("message").text(status.message()).key("members").number(uint64_t{report.num_members});
    json.key("plans").number(uint64_t{report.num_plans}).key("instructions").number(uint64_t{report.num_instructions});
    json.key("libraries")
        .number(uint64_t{report.num_libraries})
        .key("constants")
        .number(uint64_t{report.num_constants});
    json.key("weights_nbytes")
        .number(report.weights_nbytes)
        .key("signed")
        .boolean(report.has_signature != 0)
        .close('}');
    std::printf("%s\n", json.str().c_str());
    return status.ok() ? kGood : kBad;
  }
  if (!status.ok()) return bad(status.message());
  std::printf("%s\n", bold("sound").c_str());
  const char* unchecked = report.has_signature != 0 ? "not checked: no --key given" : "";
  const char* signature = report.trusted != 0 ? "by a trusted key" : unchecked;
  const Rows rows = {
      {"members", std::to_string(report.num_members), "checksums and hashes match"},
      {"plans", std::to_string(report.num_plans), std::to_string(report.num_instructions) + " instructions proved"},
      {"libraries", std::to_string(report.num_libraries), "well-formed, not run"},
      {"constants", std::to_string(report.num_constants), bytes_text(report.weights_nbytes)},
      {"signed", report.has_signature != 0 ? "yes" : "no", signature}};
  std::fputs(table(rows).c_str(), stdout);
  return kGood;
}

}  // namespace hardtack::tools
