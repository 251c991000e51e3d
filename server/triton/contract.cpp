#include "contract.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace hardtack::triton {
namespace {

struct TypeRow {
  const char* hardtack;
  TRITONSERVER_DataType type;
  const char* triton;
};

constexpr TypeRow kTypes[] = {
    {"f32", TRITONSERVER_TYPE_FP32, "FP32"},     {"f64", TRITONSERVER_TYPE_FP64, "FP64"},
    {"f16", TRITONSERVER_TYPE_FP16, "FP16"},     {"bf16", TRITONSERVER_TYPE_BF16, "BF16"},
    {"i8", TRITONSERVER_TYPE_INT8, "INT8"},      {"i16", TRITONSERVER_TYPE_INT16, "INT16"},
    {"i32", TRITONSERVER_TYPE_INT32, "INT32"},   {"i64", TRITONSERVER_TYPE_INT64, "INT64"},
    {"u8", TRITONSERVER_TYPE_UINT8, "UINT8"},    {"u16", TRITONSERVER_TYPE_UINT16, "UINT16"},
    {"u32", TRITONSERVER_TYPE_UINT32, "UINT32"}, {"bool", TRITONSERVER_TYPE_BOOL, "BOOL"},
};

bool is_channels_last(const ht_tensor_info& info) {
  if (info.ndim < 3 || info.strides[1].lo != 1 || info.strides[1].hi != 1) return false;
  for (std::int32_t d = 2; d < info.ndim; ++d) {
    if (info.shape[d].lo != 1 || info.shape[d].hi != 1) return true;
  }
  return false;
}

Outcome read_port(const ht_tensor_info& info, Port* port) {
  port->name = info.name;
  port->dtype = info.dtype;
  port->itemsize = info.dtype.bits / 8U;
  for (std::int32_t d = 0; d < info.ndim; ++d) {
    port->dims.push_back(Dim{info.shape[d].lo, info.shape[d].hi, info.shape[d].text});
  }
  port->channels_last = is_channels_last(info);
  for (const TypeRow& row : kTypes) {
    if (std::strcmp(row.hardtack, info.dtype_name) == 0) return port->type = row.type, Outcome();
  }
  return Fault{TRITONSERVER_ERROR_UNSUPPORTED,
               "'" + port->name + "' is of dtype " + info.dtype_name + ", for which Triton has no type"};
}

bool is_part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether `name` is in an expression such as "2*n + 1".
bool mentions(const std::string& expression, const std::string& name) {
  for (std::size_t at = expression.find(name); at != std::string::npos; at = expression.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || !is_part_of_name(expression[at - 1]);
    if (begins && (end == expression.size() || !is_part_of_name(expression[end]))) return true;
  }
  return false;
}

std::string why_not_batchable(const Contract& contract) {
  if (contract.inputs.empty()) return "it has no inputs";
  const Port& first = contract.inputs[0];
  if (first.dims.empty()) return "input '" + first.name + "' is " + first.text() + ", without a first dimension";
  const Dim& batch = first.dims[0];
  if (batch.fixed()) {
    return "the first dimension of input '" + first.name + "', " + first.text() + ", is always " + batch.text;
  }
  if (!std::all_of(batch.text.begin(), batch.text.end(), is_part_of_name)) {
    return "the first dimension of input '" + first.name + "', " + first.text() + ", is " + batch.text +
           " and so not of any size";
  }
  for (const auto* ports : {&contract.inputs, &contract.outputs}) {
    const char* kind = ports == &contract.inputs ? "input '" : "output '";
    for (const Port& port : *ports) {
      if (port.dims.empty() || port.dims[0].text != batch.text) {
        return "the first dimension of input '" + first.name + "' is " + batch.text + ", but " + kind + port.name +
               "' is " + port.text();
      }
      const auto other = std::find_if(port.dims.begin() + 1, port.dims.end(),
                                      [&](const Dim& dim) { return mentions(dim.text, batch.text); });
      if (other != port.dims.end()) {
        return std::string(kind) + port.name + "' is " + port.text() + ", where " + batch.text +
               " is not only the first dimension";
      }
    }
  }
  return "";
}

}  // namespace

std::string Port::text() const {
  std::string result = std::string(ht_dtype_name(dtype)) + "[";
  for (std::size_t d = 0; d < dims.size(); ++d) result += (d == 0 ? "" : ", ") + dims[d].text;
  return result + "]";
}

const char* type_name(TRITONSERVER_DataType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.triton;
  }
  return type == TRITONSERVER_TYPE_BYTES ? "BYTES" : "a type that Hardtack does not have";
}

Outcome read_contract(const Model& model, const std::string& entry, Contract* contract) {
  const std::size_t num_entries = model.info().num_entries;
  std::string names;
  for (std::size_t i = 0; i < num_entries; ++i) names += (i == 0 ? "" : ", ") + std::string(model.entry(i)->name);
  if (entry.empty() && num_entries != 1) {
    return refuse("the bundle has the entry points " + names + "; name one: parameters { key: \"entry\" }");
  }
  const std::size_t index = entry.empty() ? 0 : ht_model_find_entry(model.get(), entry.c_str());
  if (index >= num_entries) return refuse("the bundle has no entry point '" + entry + "', only " + names);
  const ht_entry_info& info = *model.entry(index);
  contract->entry = info.name;
  contract->inputs.resize(info.num_inputs);
  contract->outputs.resize(info.num_outputs);
  for (std::size_t i = 0; i < info.num_inputs; ++i) {
    if (Outcome failed = read_port(*model.input(index, i), &contract->inputs[i])) return failed;
    if (model.input(index, i)->written != 0) {
      return refuse("the model writes to its input '" + contract->inputs[i].name +
                    "', and requests hold copies; have it return the new value instead");
    }
  }
  for (std::size_t i = 0; i < info.num_outputs; ++i) {
    if (Outcome failed = read_port(*model.output(index, i), &contract->outputs[i])) return failed;
  }
  contract->has_states = model.info().num_states > 0;
  contract->not_batchable = why_not_batchable(*contract);
  if (contract->batchable()) contract->batch = contract->inputs[0].dims[0];
  return {};
}

}  // namespace hardtack::triton
