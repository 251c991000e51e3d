#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "commands.h"
#include "inputs.h"
#include "text.h"

namespace hardtack::tools {
namespace {

std::string shape_text(const ht_tensor& t) {
  std::string out = std::string(ht_dtype_name(t.dtype)) + " [";
  for (int32_t d = 0; d < t.ndim; ++d) out += (d == 0 ? "" : ", ") + std::to_string(t.shape[d]);
  return out + "]";
}

bool make_folder(const std::string& path) {
  struct stat about;
  return ::mkdir(path.c_str(), 0777) == 0 ||
         (errno == EEXIST && ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode));
}

// Names come from the bundle: what could leave the folder becomes '_'.
std::string file_name(const std::string& name) {
  std::string out = name;
  for (char& c : out) {
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = '_';
  }
  return (out.empty() || out[0] == '.' ? "_" + out : out) + ".npy";
}

// One row of the table, one object in the JSON and, with a folder, a file in it.
struct Report {
  std::vector<std::vector<std::string>> rows;
  JsonWriter json;

  bool add(const std::string& name, const ht_tensor& tensor, const std::string& folder, std::string* problem) {
    const std::string path = folder.empty() ? "" : folder + "/" + file_name(name);
    if (!path.empty() && !write_npy(path, tensor, problem)) return false;
    rows.push_back({name, shape_text(tensor), path});
    json.open('{').key("name").text(name).key("dtype").text(ht_dtype_name(tensor.dtype)).key("shape").open('[');
    for (int32_t d = 0; d < tensor.ndim; ++d) json.number(tensor.shape[d]);
    json.close(']').key("file");
    (path.empty() ? json.null() : json.text(path)).close('}');
    return true;
  }
};

}  // namespace

int run(const Args& args) {
  Loaded loaded;
  Inputs inputs;
  int exit_status = kGood;
  std::string problem;
  if (!load(args, &loaded, &exit_status)) return exit_status;
  if (!inputs.build(args, loaded, false, &problem)) return wrong_use("run: " + problem);
  const ht_entry_info& entry = *loaded.model.entry(loaded.entry);
  std::vector<ht_tensor> outputs(entry.num_outputs);
  const Status status =
      loaded.session.run(entry.name, inputs.tensors().data(), inputs.tensors().size(), outputs.data(), outputs.size());
  if (!status.ok()) return bad(status.message());
  const std::string folder = args.get("--output");
  if (!folder.empty() && !make_folder(folder)) return bad(folder + ": " + std::strerror(errno));
  Report report;
  report.json.open('{').key("outputs").open('[');
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = loaded.model.output(loaded.entry, i)->name;
    if (!report.add(name, outputs[i], folder, &problem)) return bad(problem);
  }
  report.json.close(']');
  // Apart from the outputs, which may have the same names.
  const std::string written = folder.empty() ? "" : folder + "/written";
  bool any = false;
  for (size_t i = 0; i < entry.num_inputs; ++i) {
    const ht_tensor_info& input = *loaded.model.input(loaded.entry, i);
    if (input.written == 0) continue;
    if (!any && !written.empty() && !make_folder(written)) return bad(written + ": " + std::strerror(errno));
    if (!any) report.json.key("written").open('[');
    any = true;
    if (!report.add(input.name, inputs.tensors()[i], written, &problem)) return bad(problem);
  }
  if (any) report.json.close(']');
  report.json.close('}');
  std::fputs(args.has("--json") ? (report.json.str() + "\n").c_str() : table(report.rows).c_str(), stdout);
  return kGood;
}

}  // namespace hardtack::tools
