#include "c_api.h"
#include "host_kernels.h"
#include "trust.h"

using hardtack::rt::error;
using hardtack::rt::guarded;
using hardtack::rt::ModelInfo;
using hardtack::rt::read_options;
using hardtack::rt::Source;
using hardtack::rt::Status;
using hardtack::rt::write_info;

namespace {

Status load(std::unique_ptr<Source> source, const char* path, const ht_load_options* given, ht_model** model) {
  ht_load_options options;
  std::shared_ptr<const hardtack::rt::Model> loaded;
  HT_RETURN_IF_ERROR(read_options(given, "ht_load_options", &options));
  HT_RETURN_IF_ERROR(hardtack::rt::Model::load(std::move(source), path, options, &loaded));
  *model = new ht_model{std::move(loaded)};
  return Status();
}

const ModelInfo& info_of(const ht_model* model) { return model->model->info(); }

template <typename Row>
const Row* at(const std::vector<Row>& rows, size_t i) {
  return i < rows.size() ? &rows[i] : nullptr;
}

template <typename Row>
const Row* at(const std::vector<std::vector<Row>>& rows, size_t i, size_t k) {
  return i < rows.size() ? at(rows[i], k) : nullptr;
}

#define HT_TEXT_OF(x) #x
#define HT_TEXT(x) HT_TEXT_OF(x)

}  // namespace

extern "C" {

const char* ht_version(void) {
  return HT_TEXT(HT_VERSION_MAJOR) "." HT_TEXT(HT_VERSION_MINOR) "." HT_TEXT(HT_VERSION_PATCH);
}

ht_status* ht_check_trusted_keys(const char* path) {
  return guarded([&]() -> Status {
    hardtack::rt::Trust trust;
    if (path == nullptr) return error(HT_INVALID_ARGUMENT, "ht_check_trusted_keys: path is null");
    return hardtack::rt::read_trusted_keys(path, &trust);
  });
}

ht_status* ht_register_op(const char* name, uint32_t abi_version, ht_kernel kernel, void* user_data) {
  return guarded([&]() -> Status {
    if (name == nullptr || kernel == nullptr) {
      return error(HT_INVALID_ARGUMENT, "ht_register_op: name or kernel is null");
    }
    return hardtack::rt::register_host_kernel(name, abi_version, {kernel, user_data});
  });
}

ht_status* ht_model_load(const char* path, const ht_load_options* options, ht_model** model) {
  return guarded([&]() -> Status {
    if (path == nullptr || model == nullptr) return error(HT_INVALID_ARGUMENT, "ht_model_load: path or model is null");
    std::unique_ptr<Source> source;
    HT_RETURN_IF_ERROR(hardtack::rt::open_file(path, &source));
    return in_context(load(std::move(source), path, options, model), path);
  });
}

ht_status* ht_model_load_memory(const void* data, size_t nbytes, void (*release)(void*), void* user,
                                const ht_load_options* options, ht_model** model) {
  return guarded([&]() -> Status {
    std::unique_ptr<Source> source = hardtack::rt::open_memory(data, nbytes, release, user);
    if (data == nullptr || model == nullptr) {
      return error(HT_INVALID_ARGUMENT, "ht_model_load_memory: data or model is null");
    }
    if (release != nullptr && reinterpret_cast<uintptr_t>(data) % 64 != 0) {
      return error(HT_INVALID_ARGUMENT, "ht_model_load_memory: data to be used in place must be aligned to 64 bytes");
    }
    return load(std::move(source), nullptr, options, model);
  });
}

void ht_model_free(ht_model* model) { delete model; }

const ht_model_info* ht_model_get_info(const ht_model* model) { return &info_of(model).model; }

const ht_entry_info* ht_model_entry(const ht_model* model, size_t entry) { return at(info_of(model).entries, entry); }

const ht_tensor_info* ht_model_input(const ht_model* model, size_t entry, size_t input) {
  return at(info_of(model).inputs, entry, input);
}

const ht_tensor_info* ht_model_output(const ht_model* model, size_t entry, size_t output) {
  return at(info_of(model).outputs, entry, output);
}

const ht_sym_info* ht_model_sym(const ht_model* model, size_t entry, size_t sym) {
  return at(info_of(model).syms, entry, sym);
}

const char* ht_model_guard(const ht_model* model, size_t entry, size_t guard) {
  const auto* program = at(model->model->programs(), entry);
  const auto* found = program == nullptr ? nullptr : at(program->plan.guards, guard);
  return found == nullptr ? nullptr : found->text;
}

const ht_array_info* ht_model_state(const ht_model* model, size_t state) { return at(info_of(model).states, state); }

const ht_array_info* ht_model_constant(const ht_model* model, size_t constant) {
  return at(info_of(model).constants, constant);
}

const ht_target_info* ht_model_target(const ht_model* model, size_t target) {
  return at(info_of(model).targets, target);
}

const ht_member_info* ht_model_member(const ht_model* model, size_t member) {
  return at(info_of(model).members, member);
}

const char* ht_model_user_kernel(const ht_model* model, size_t kernel, const char** function, int32_t* host) {
  const auto* found = at(model->model->manifest().user_kernels, kernel);
  if (found == nullptr) return nullptr;
  if (function != nullptr) *function = found->function;
  if (host != nullptr) *host = found->host ? 1 : 0;
  return found->op;
}

const char* ht_model_producer(const ht_model* model, size_t producer, const char** version) {
  const auto* found = at(model->model->manifest().producer, producer);
  if (found == nullptr) return nullptr;
  if (version != nullptr) *version = found->text;
  return found->name;
}

size_t ht_model_find_entry(const ht_model* model, const char* name) {
  const auto& entries = info_of(model).entries;
  for (size_t i = 0; name != nullptr && i < entries.size(); ++i) {
    if (std::strcmp(entries[i].name, name) == 0) return i;
  }
  return SIZE_MAX;
}

ht_status* ht_model_allocate(ht_model* model, size_t nbytes, void** memory) {
  return guarded([&]() -> Status {
    if (model == nullptr || memory == nullptr || model->model->device() == nullptr) {
      return error(HT_INVALID_ARGUMENT, "ht_model_allocate: model or memory is null, or the model has no device");
    }
    return model->model->device()->allocate(nbytes, memory);
  });
}

void ht_model_deallocate(ht_model* model, void* memory) { model->model->device()->release(memory); }

ht_status* ht_verify_file(const char* path, const ht_load_options* given, ht_verify_report* report) {
  return guarded([&]() -> Status {
    ht_load_options options;
    if (path == nullptr) return error(HT_INVALID_ARGUMENT, "ht_verify_file: path is null");
    HT_RETURN_IF_ERROR(read_options(given, "ht_load_options", &options));
    std::unique_ptr<Source> source;
    HT_RETURN_IF_ERROR(hardtack::rt::open_file(path, &source));
    ht_verify_report found = {};
    found.struct_size = sizeof found;
    HT_RETURN_IF_ERROR(in_context(verify_bundle(std::move(source), path, options, &found), path));
    return report == nullptr ? Status() : write_info(found, "ht_verify_report", report);
  });
}

}  // extern "C"
