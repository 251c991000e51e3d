#include "inputs.h"

#include <chrono>
#include <cstring>

#include "commands.h"
#include "expression.h"
#include "npy.h"
#include "text.h"

namespace hardtack::tools {
namespace {

constexpr int64_t kMaxBufferNbytes = int64_t{1} << 40;
constexpr char kRngState[] = "hardtack.rng";  // i64[2]: the seed, and how many were drawn

bool split(const std::string& text, std::string* name, std::string* value) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  *name = text.substr(0, equals);
  *value = text.substr(equals + 1);
  return true;
}

// Copies contiguous elements into a strided layout.
void scatter(const char** from, char* to, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
             size_t dim, size_t itemsize) {
  if (dim == shape.size()) {
    std::memcpy(to, *from, itemsize);
    *from += itemsize;
    return;
  }
  for (int64_t i = 0; i < shape[dim]; ++i) {
    scatter(from, to + i * strides[dim] * static_cast<int64_t>(itemsize), shape, strides, dim + 1, itemsize);
  }
}

// Writes --seed, if it is given, to the state of random numbers.
bool seed(const Args& args, Loaded* loaded, int* exit_status) {
  if (!args.has("--seed")) return true;
  int64_t state[2] = {0, 0};
  std::string problem;
  if (!parse_number(args, "--seed", INT64_MIN, INT64_MAX, &state[0], &problem))
    return *exit_status = wrong_use(problem), false;
  for (size_t i = 0; i < loaded->model.info().num_states; ++i) {
    if (std::strcmp(loaded->model.state(i)->name, kRngState) != 0) continue;
    const Status written = loaded->session.write_state(kRngState, state, sizeof state);
    return written.ok() || (*exit_status = bad(written.message()), false);
  }
  return *exit_status = wrong_use("--seed: the model draws no random numbers"), false;
}

}  // namespace

bool load(const Args& args, Loaded* loaded, int* exit_status) {
  int64_t threads = 0;
  std::string problem;
  if (!parse_number(args, "--threads", 1, 1024, &threads, &problem)) return *exit_status = wrong_use(problem), false;
  const std::string target = args.get("--target"), entry = args.get("--entry"), device = args.get("--device");
  const std::string weights = args.get("--weights");
  ht_load_options options = ht_load_options_default();
  options.device = device.empty() ? nullptr : device.c_str();
  options.target = target.empty() ? nullptr : target.c_str();
  options.weights_path = weights.empty() ? nullptr : weights.c_str();
  const auto start = std::chrono::steady_clock::now();
  auto model = Model::load(args.operands[0], &options);
  loaded->load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!model.ok()) return *exit_status = bad(model.status().message()), false;
  loaded->model = *model;
  if (!entry.empty()) {
    loaded->entry = ht_model_find_entry(model->get(), entry.c_str());
  } else if (model->info().num_entries > 1) {
    loaded->entry = SIZE_MAX;
  }
  if (loaded->entry == SIZE_MAX) {
    std::string known;
    for (size_t i = 0; i < model->info().num_entries; ++i)
      known += (i == 0 ? "" : ", ") + std::string(model->entry(i)->name);
    return *exit_status =
               wrong_use((entry.empty() ? "name one with --entry: " : "no entry \"" + entry + "\"; there is ") + known),
           false;
  }
  ht_session_options session_options = ht_session_options_default();
  session_options.num_threads = static_cast<int32_t>(threads);
  auto session = model->new_session(&session_options);
  if (!session.ok()) return *exit_status = bad(session.status().message()), false;
  loaded->session = std::move(*session);
  return seed(args, loaded, exit_status);
}

bool Inputs::build(const Args& args, const Loaded& loaded, bool make_up, std::string* problem) {
  const ht_entry_info& entry = *loaded.model.entry(loaded.entry);
  if (!read_files(args, loaded, problem) || !read_sizes(args, loaded, problem)) return false;
  for (size_t i = 0; i < entry.num_inputs; ++i) {
    const ht_tensor_info& info = *loaded.model.input(loaded.entry, i);
    const auto file = files_.find(info.name);
    if (file == files_.end() && !make_up) {
      return *problem = "input \"" + std::string(info.name) + "\" (" + tensor_text(info) + ") is missing: give -i " +
                        info.name + "=FILE.npy",
             false;
    }
    if (!add(info, file == files_.end() ? nullptr : &file->second, problem)) return false;
  }
  // A size that is the value of an input: where the input is made up, it gets that value.
  for (size_t s = 0; s < entry.num_syms; ++s) {
    const ht_sym_info& sym = *loaded.model.sym(loaded.entry, s);
    if (sym.input < 0) continue;
    const char* name = loaded.model.input(loaded.entry, static_cast<size_t>(sym.input))->name;
    if (sym.dim >= 0 || files_.count(name) > 0) continue;
    std::memcpy(tensors_[static_cast<size_t>(sym.input)].data, &sizes_[sym.name], sizeof(int64_t));
  }
  return true;
}

bool Inputs::read_files(const Args& args, const Loaded& loaded, std::string* problem) {
  const ht_entry_info& entry = *loaded.model.entry(loaded.entry);
  for (const std::string& option : args.all("--input")) {
    std::string name, path;
    if (!split(option, &name, &path)) return *problem = "--input \"" + option + "\": expected NAME=FILE.npy", false;
    const ht_tensor_info* info = nullptr;
    std::string known;
    for (size_t i = 0; i < entry.num_inputs; ++i) {
      const ht_tensor_info* input = loaded.model.input(loaded.entry, i);
      if (name == input->name) info = input;
      known += (i == 0 ? "" : ", ") + std::string(input->name);
    }
    if (info == nullptr)
      return *problem = "no input \"" + name + "\"; the entry has " + (known.empty() ? "none" : known), false;
    if (files_.count(name) > 0) return *problem = "input \"" + name + "\" is given twice", false;
    if (!read_npy(path, info->dtype, &files_[name], problem)) return false;
  }
  return true;
}

// The sizes: from the files' shapes, then from --size, then the smallest that are declared (1 rather than 0).
bool Inputs::read_sizes(const Args& args, const Loaded& loaded, std::string* problem) {
  const ht_entry_info& entry = *loaded.model.entry(loaded.entry);
  std::map<std::string, int64_t> given;
  for (const std::string& option : args.all("--size")) {
    std::string name, number;
    Args one;
    if (!split(option, &name, &number)) return *problem = "--size \"" + option + "\": expected SYM=N", false;
    one.options[name] = {number};
    if (!parse_number(one, name, INT64_MIN, INT64_MAX, &given[name], problem)) return false;
  }
  for (size_t s = 0; s < entry.num_syms; ++s) {
    const ht_sym_info& sym = *loaded.model.sym(loaded.entry, s);
    if (sym.input < 0) continue;  // the run computes it
    int64_t size = sym.lo > 1 || sym.hi < 1 ? sym.lo : 1;
    const auto wanted = given.find(sym.name);
    const auto file = files_.find(loaded.model.input(loaded.entry, static_cast<size_t>(sym.input))->name);
    if (wanted != given.end())
      size = wanted->second, given.erase(wanted);
    else if (file != files_.end() && sym.dim >= 0 && static_cast<size_t>(sym.dim) < file->second.shape.size()) {
      size = file->second.shape[static_cast<size_t>(sym.dim)];
    } else if (file != files_.end() && sym.dim < 0 && file->second.bytes.size() == sizeof size) {
      std::memcpy(&size, file->second.bytes.data(), sizeof size);
    }
    sizes_[sym.name] = size;
  }
  if (given.empty()) return true;
  *problem = "no size \"" + given.begin()->first + "\"; the entry has";
  for (const auto& [name, size] : sizes_) *problem += " " + name;
  return false;
}

bool Inputs::add(const ht_tensor_info& info, const Array* array, std::string* problem) {
  buffers_.emplace_back();
  Buffer& buffer = buffers_.back();
  const int64_t itemsize = info.dtype.bits / 8;
  int64_t last = 0, numel = 1;
  bool fits = true;
  for (int32_t d = 0; d < info.ndim; ++d) {
    int64_t size = 0, stride = 0, reach = 0;
    if (!evaluate(info.shape[d].text, sizes_, &size) || !evaluate(info.strides[d].text, sizes_, &stride) || size < 0) {
      return *problem =
                 "input \"" + std::string(info.name) + "\": cannot tell the size of dimension " + std::to_string(d),
             false;
    }
    // A file that breaks the contract goes to the runtime as it is, which says what is wrong.
    buffer.shape.push_back(size);
    buffer.strides.push_back(stride);
    numel = size == 0 ? 0 : numel;
    fits = fits && !__builtin_mul_overflow(size > 0 ? size - 1 : 0, stride, &reach) &&
           !__builtin_add_overflow(last, reach, &last) && !__builtin_mul_overflow(numel, size, &numel);
  }
  if (!fits || last >= kMaxBufferNbytes / itemsize) {
    return *problem = "input \"" + std::string(info.name) + "\" would be larger than 1 TiB", false;
  }
  ht_tensor tensor = {};
  tensor.device.device_type = 1;
  tensor.dtype = info.dtype;
  if (array != nullptr &&
      (array->shape != buffer.shape || std::memcmp(&array->dtype, &info.dtype, sizeof info.dtype) != 0)) {
    buffer.shape = array->shape;
    buffer.strides.clear();
    buffer.bytes = array->bytes;
    tensor.dtype = array->dtype;
  } else {
    buffer.bytes.assign(static_cast<size_t>(numel == 0 ? 1 : (last + 1) * itemsize), 0);
    const char* from = array == nullptr ? nullptr : array->bytes.data();
    if (array != nullptr && numel > 0) {
      scatter(&from, buffer.bytes.data(), buffer.shape, buffer.strides, 0, static_cast<size_t>(itemsize));
    }
  }
  tensor.data = buffer.bytes.data();
  tensor.ndim = static_cast<int32_t>(buffer.shape.size());
  tensor.shape = buffer.shape.data();
  tensor.strides = buffer.strides.empty() ? nullptr : buffer.strides.data();
  tensors_.push_back(tensor);
  return true;
}

}  // namespace hardtack::tools
