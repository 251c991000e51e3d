#include "server/core/model_version.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <system_error>

#include "server/core/batcher.h"
#include "server/core/cpus.h"
#include "server/core/text.h"

namespace hardtack::serve {

namespace {

constexpr int kMostDefaultSessions = 4;

TensorMeta meta_of(const ht_tensor_info& info) {
  TensorMeta meta;
  meta.name = info.name;
  meta.dtype = info.dtype;
  meta.datatype = protocol_name(info.dtype);
  for (std::int32_t d = 0; d < info.ndim; ++d) {
    meta.dims.push_back(info.shape[d]);
    meta.shape.push_back(info.shape[d].lo == info.shape[d].hi ? info.shape[d].lo : -1);
  }
  return meta;
}

bool mentions(const char* text, const std::string& symbol) {
  const std::string whole = text;
  const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = whole.find(symbol); at != std::string::npos; at = whole.find(symbol, at + 1)) {
    const std::size_t end = at + symbol.size();
    if ((at == 0 || !part_of_name(whole[at - 1])) && (end == whole.size() || !part_of_name(whole[end]))) return true;
  }
  return false;
}

// The symbol that is dimension 0 of all inputs and outputs and occurs nowhere else; "" where there is none.
std::string batch_symbol(const Entry& entry) {
  if (entry.inputs.empty() || entry.inputs[0].dims.empty()) return "";
  const ht_dim_info& first = entry.inputs[0].dims[0];
  std::string symbol = first.text;
  if (first.lo == first.hi || symbol.find_first_of(" */+-(") != std::string::npos) return "";
  for (const auto* tensors : {&entry.inputs, &entry.outputs}) {
    for (const TensorMeta& tensor : *tensors) {
      if (tensor.dims.empty() || symbol != tensor.dims[0].text) return "";
      for (std::size_t d = 1; d < tensor.dims.size(); ++d) {
        if (mentions(tensor.dims[d].text, symbol)) return "";
      }
    }
  }
  return symbol;
}

Entry entry_of(const hardtack::Model& bundle, std::size_t index, const ModelOptions& options) {
  const ht_entry_info& info = *bundle.entry(index);
  Entry entry;
  entry.name = info.name;
  entry.index = index;
  entry.loops = info.no_graph[0] != 0;
  for (std::size_t i = 0; i < info.num_inputs; ++i) entry.inputs.push_back(meta_of(*bundle.input(index, i)));
  for (std::size_t i = 0; i < info.num_outputs; ++i) entry.outputs.push_back(meta_of(*bundle.output(index, i)));
  entry.batches = options.max_batch > 1 && bundle.info().num_states == 0 && !batch_symbol(entry).empty();
  if (entry.batches) entry.max_batch = std::min(options.max_batch, entry.inputs[0].dims[0].hi);
  return entry;
}

// The protocol has no name for floats of 8 bits.
Failure check_types(const Entry& entry) {
  for (const auto* tensors : {&entry.inputs, &entry.outputs}) {
    for (const TensorMeta& tensor : *tensors) {
      if (dtype_from_protocol(tensor.datatype)) continue;
      return Error{Code::kInvalid, (tensors == &entry.inputs ? "input \"" : "output \"") + tensor.name +
                                       "\" of entry \"" + entry.name + "\" is " + ht_dtype_name(tensor.dtype) +
                                       ", for which the protocol has no name; convert it in the model"};
    }
  }
  return std::nullopt;
}

// A request's inputs are copies, which nobody could read what a run writes to them from.
Failure check_written(const hardtack::Model& bundle, const Entry& entry) {
  for (std::size_t i = 0; i < entry.inputs.size(); ++i) {
    if (bundle.input(entry.index, i)->written == 0) continue;
    return Error{Code::kInvalid, "input \"" + entry.inputs[i].name + "\" of entry \"" + entry.name +
                                     "\" is written in place, and requests hold copies; have the model return the new "
                                     "value instead"};
  }
  return std::nullopt;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

int default_sessions() { return std::min(usable_cpus(), kMostDefaultSessions); }

Failure verify(const std::string& path, const ht_load_options& options) {
  ht_status* failed = ht_verify_file(path.c_str(), &options, nullptr);
  if (failed == nullptr) return std::nullopt;
  return from_status(failed);
}

}  // namespace

ModelVersion::ModelVersion() : number_(next_number()) {}
ModelVersion::~ModelVersion() = default;

Outcome<std::shared_ptr<ModelVersion>> ModelVersion::load(const std::string& model, std::int64_t version,
                                                          const std::string& path, const RepositoryOptions& options,
                                                          Workers& workers, Budget& budget,
                                                          std::shared_ptr<Statistics> statistics) try {
  auto loaded = std::shared_ptr<ModelVersion>(new ModelVersion);
  loaded->model_ = model;
  loaded->version_ = std::to_string(version);
  loaded->path_ = path;
  loaded->options_ = options.of(model);

  ht_load_options load = ht_load_options_default();
  load.device = options.device.empty() ? nullptr : options.device.c_str();
  load.target = options.target.empty() ? nullptr : options.target.c_str();
  load.verify_weights = options.verify_weights ? 1 : 0;
  load.copy_weights = options.map_weights ? 0 : 1;
  if (!options.trusted_keys.empty()) {
    load.trusted_keys_path = options.trusted_keys.c_str();
    load.signed_model = model.c_str();
  }
  if (options.verify_weights) {
    if (Failure bad = verify(path, load)) return *bad;
  }
  auto bundle = hardtack::Model::load(path, &load);
  if (!bundle.ok()) return Error{Code::kInvalid, bundle.status().message()};
  loaded->bundle_ = std::move(*bundle);
  loaded->weights_ = Share(budget);
  if (!options.map_weights && !loaded->on_gpu()) loaded->weights_.charge(loaded->info().weights_nbytes);
  for (std::size_t i = 0; i < loaded->info().num_entries; ++i) {
    loaded->entries_.push_back(entry_of(loaded->bundle_, i, loaded->options_));
    if (Failure wrong = check_types(loaded->entries_.back())) return *wrong;
    if (Failure wrong = check_written(loaded->bundle_, loaded->entries_.back())) return *wrong;
    if (loaded->entries_.back().name == "forward") loaded->default_entry_ = i;
  }
  if (loaded->entries_.empty()) return Error{Code::kInvalid, path + " has no entry point"};

  loaded->num_sessions_ = loaded->options_.sessions > 0 ? loaded->options_.sessions : default_sessions();
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int i = 0; i < loaded->num_sessions_; ++i) {
    ht_session_options session = ht_session_options_default();
    session.num_threads = options.threads;
    session.max_nbytes = options.max_session_nbytes;
    session.outputs = HT_OUTPUTS_ON_HOST;
    if (!loaded->on_gpu()) session.allocator = budget.allocator();  // a GPU's memory is no memory of the process
    auto lane = Lane::create(*loaded, session, workers, budget);
    if (!lane.ok()) return lane.error();
    lanes.push_back(std::move(*lane));
  }
  loaded->batcher_ = std::make_unique<Batcher>(*loaded, budget, std::move(lanes), std::move(statistics));
  return loaded;
} catch (const std::system_error& error) {
  return Error{Code::kNoMemory, "the system gives no more threads, and each session takes one: " +
                                    error.code().message() + "; use fewer --sessions, or raise the limit"};
} catch (...) {
  return from_exception();
}

std::string ModelVersion::entry_names() const {
  std::string names;
  for (const Entry& entry : entries_) names += (names.empty() ? "" : ",") + entry.name;
  return names;
}

Outcome<const Entry*> ModelVersion::entry(std::string_view name) const {
  if (name.empty()) return &default_entry();
  std::string known;
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry;
    known += (known.empty() ? "\"" : ", \"") + entry.name + "\"";
  }
  return Error{Code::kInvalid, "model \"" + model_ + "\" (version " + version_ + ") has no entry point \"" +
                                   cut(name, 200) + "\"; it has " + known};
}

Shape ModelVersion::config_shape(const TensorMeta& tensor) const {
  const bool batched = max_batch_size() > 0;
  return batched ? Shape(tensor.shape.begin() + 1, tensor.shape.end()) : tensor.shape;
}

void ModelVersion::submit(Request&& request, Done&& done) noexcept {
  Requests one;
  try {
    one.emplace_back();
  } catch (...) {
    Pending alone;
    alone.response.id = std::move(request.id);
    alone.request = std::move(request);
    alone.done = std::move(done);
    return batcher_->refuse(alone, from_exception());
  }
  Pending& pending = one.front();
  pending.request = std::move(request);
  pending.done = std::move(done);
  pending.response.id = std::move(pending.request.id);
  Failure wrong;
  try {
    pending.response.model = model_;
    pending.response.version = version_;
    wrong = check_request(*this, pending);
  } catch (...) {
    wrong = from_exception();
  }
  if (wrong) return batcher_->refuse(pending, *wrong);
  batcher_->submit(std::move(one));
}

Failure ModelVersion::check(Request& request) const {
  Failure wrong = check_form(*this, request);
  if (wrong) batcher_->count_refused(request, *wrong);
  return wrong;
}

void ModelVersion::stop() { batcher_->stop(); }

bool ModelVersion::idle() const { return batcher_->idle(); }

StatisticsSnapshot ModelVersion::statistics() const { return batcher_->statistics(); }

}  // namespace hardtack::serve
