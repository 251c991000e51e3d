#include "server/core/pending.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "server/core/protocol.h"
#include "server/core/text.h"

namespace hardtack::serve {

namespace {

std::string names_of(const std::vector<TensorMeta>& tensors) {
  std::string text;
  for (const TensorMeta& tensor : tensors) text += (text.empty() ? "\"" : ", \"") + tensor.name + "\"";
  return text;
}

std::string of_model(const ModelVersion& version) {
  return "model \"" + version.model() + "\" (version " + version.version() + ")";
}

Failure check_input(const ModelVersion& version, const TensorMeta& meta, const Input& input) {
  const auto which = [&] { return "input \"" + input.name + "\" of " + of_model(version); };
  if (!same_dtype(meta.dtype, input.dtype)) {
    return Error{Code::kInvalid, which() + " is " + meta.datatype + ", " + protocol_name(input.dtype) + " was sent"};
  }
  bool good = meta.shape.size() == input.shape.size();
  for (std::size_t d = 0; good && d < meta.shape.size(); ++d) {
    good = input.shape[d] >= meta.dims[d].lo && input.shape[d] <= meta.dims[d].hi;
  }
  if (!good) {
    std::string wanted;
    for (const ht_dim_info& dim : meta.dims) {
      wanted += wanted.empty() ? "[" : ",";
      wanted += dim.text;
      if (dim.lo == dim.hi) continue;
      wanted += " from " + std::to_string(dim.lo);
      if (dim.hi != INT64_MAX) wanted += " to " + std::to_string(dim.hi);
    }
    return Error{Code::kInvalid, which() + " has shape " + to_text(input.shape) + ", expected " +
                                     (wanted.empty() ? "[" : wanted) + "]"};
  }
  return std::nullopt;
}

Failure check_data(const Input& input) {
  if (Failure wrong = check_nbytes(input)) return wrong;
  if (input.nbytes == 0 || (input.data != nullptr && aligned(input.data, input.dtype))) return std::nullopt;
  return Error{Code::kInternal, input_named(input.name) + " was handed over unaligned; this is a bug of the server"};
}

Failure order_inputs(const ModelVersion& version, const Request& request, Form& form) {
  const std::vector<TensorMeta>& metas = form.entry->inputs;
  const std::vector<Input>& inputs = request.inputs;
  form.inputs.assign(metas.size(), SIZE_MAX);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto meta =
        std::find_if(metas.begin(), metas.end(), [&](const TensorMeta& m) { return m.name == inputs[i].name; });
    if (meta == metas.end()) {
      return Error{Code::kInvalid, of_model(version) + " has no input \"" + cut(inputs[i].name, 200) +
                                       "\"; its inputs are " + names_of(metas)};
    }
    std::size_t& place = form.inputs[static_cast<std::size_t>(meta - metas.begin())];
    if (place != SIZE_MAX) return Error{Code::kInvalid, "input \"" + inputs[i].name + "\" is given twice"};
    place = i;
    if (Failure wrong = check_input(version, *meta, inputs[i])) return wrong;
  }
  for (std::size_t i = 0; i < metas.size(); ++i) {
    if (form.inputs[i] != SIZE_MAX) continue;
    return Error{Code::kInvalid, of_model(version) + " needs input \"" + metas[i].name +
                                     "\", which is missing; its inputs are " + names_of(metas)};
  }
  return std::nullopt;
}

Failure order_outputs(const ModelVersion& version, const Request& request, Form& form) {
  const std::vector<TensorMeta>& metas = form.entry->outputs;
  if (request.outputs.empty()) {
    form.outputs.resize(metas.size());
    std::iota(form.outputs.begin(), form.outputs.end(), std::size_t{0});
    return std::nullopt;
  }
  for (const std::string& name : request.outputs) {
    const auto meta = std::find_if(metas.begin(), metas.end(), [&](const TensorMeta& m) { return m.name == name; });
    if (meta == metas.end()) {
      return Error{Code::kInvalid,
                   of_model(version) + " has no output \"" + cut(name, 200) + "\"; its outputs are " + names_of(metas)};
    }
    const auto index = static_cast<std::size_t>(meta - metas.begin());
    if (std::find(form.outputs.begin(), form.outputs.end(), index) != form.outputs.end()) {
      return Error{Code::kInvalid, "output \"" + name + "\" is asked for twice"};
    }
    form.outputs.push_back(index);
  }
  return std::nullopt;
}

Failure check_rows(const ModelVersion& version, const Request& request, Form& form) {
  if (!form.entry->batches) return std::nullopt;
  const std::vector<Input>& inputs = request.inputs;
  const Input& first = inputs[form.inputs[0]];
  form.rows = first.shape[0];
  for (const std::size_t i : form.inputs) {
    if (inputs[i].shape[0] == form.rows) continue;
    return Error{Code::kInvalid, "inputs \"" + first.name + "\" and \"" + inputs[i].name + "\" of " +
                                     of_model(version) + " have " + std::to_string(form.rows) + " and " +
                                     std::to_string(inputs[i].shape[0]) + " rows; they must agree"};
  }
  return std::nullopt;
}

Failure check_sequence(const ModelVersion& version, const Sequence& sequence) {
  if (sequence.id.empty()) {
    if (!sequence.start && !sequence.end) return std::nullopt;
    return Error{Code::kInvalid, "sequence_start and sequence_end need a sequence_id"};
  }
  if (version.has_states()) return std::nullopt;
  return Error{Code::kUnsupported,
               of_model(version) + " keeps no states, so a sequence means nothing to it; leave out sequence_id"};
}

}  // namespace

Failure check_form(const ModelVersion& version, Request& request) {
  auto entry = version.entry(request.entry);
  if (!entry.ok()) return entry.error();
  Form form;
  form.entry = *entry;
  if (Failure wrong = check_sequence(version, request.sequence)) return wrong;
  if (Failure wrong = order_inputs(version, request, form)) return wrong;
  if (Failure wrong = order_outputs(version, request, form)) return wrong;
  if (Failure wrong = check_rows(version, request, form)) return wrong;
  form.checked_by = version.number();
  request.form = std::move(form);
  return std::nullopt;
}

Failure check_request(const ModelVersion& version, Pending& pending) {
  if (pending.request.form.checked_by != version.number()) {
    if (Failure wrong = check_form(version, pending.request)) return wrong;
  }
  static_cast<Form&>(pending) = std::move(pending.request.form);
  for (const Input& input : pending.request.inputs) {
    if (Failure wrong = check_data(input)) return wrong;
  }
  return std::nullopt;
}

void Pending::fail(const Error& error) noexcept {
  response.outputs.clear();
  response.memory.reset();
  try {
    response.error = error;
  } catch (...) {
    response.error = from_exception();
  }
}

bool fits(const Pending& a, const Pending& b) {
  if (a.entry != b.entry || a.rows == 0 || b.rows == 0) return false;
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const Shape& x = a.request.inputs[a.inputs[i]].shape;
    const Shape& y = b.request.inputs[b.inputs[i]].shape;
    if (!std::equal(x.begin() + 1, x.end(), y.begin() + 1, y.end())) return false;
  }
  return true;
}

}  // namespace hardtack::serve
