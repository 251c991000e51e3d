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
  std::vector<std::vector<std::string>> rows;
  JsonWriter json;
  json.open('{').key("outputs").open('[');
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = loaded.model.output(loaded.entry, i)->name;
    const std::string path = folder.empty() ? "" : folder + "/" + file_name(name);
    if (!path.empty() && !write_npy(path, outputs[i], &problem)) return bad(problem);
    rows.push_back({name, shape_text(outputs[i]), path});
    json.open('{').key("name").text(name).key("dtype").text(ht_dtype_name(outputs[i].dtype)).key("shape").open('[');
    for (int32_t d = 0; d < outputs[i].ndim; ++d) json.number(outputs[i].shape[d]);
    json.close(']').key("file");
    (path.empty() ? json.null() : json.text(path)).close('}');
  }
  json.close(']').close('}');
  std::fputs(args.has("--json") ? (json.str() + "\n").c_str() : table(rows).c_str(), stdout);
  return kGood;
}

}  // namespace hardtack::tools
