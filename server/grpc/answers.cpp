#include "server/grpc/answers.h"

#include "server/core/protocol.h"

namespace hardtack::serve::rpc {

namespace {

pb::DataType config_type(const TensorMeta& meta) {
  pb::DataType type = pb::TYPE_INVALID;
  pb::DataType_Parse("TYPE_" + std::string(meta.datatype), &type);
  return type;
}

template <typename Tensors>
void add_metadata(const std::vector<TensorMeta>& metas, Tensors& tensors) {
  for (const TensorMeta& meta : metas) {
    auto& tensor = *tensors.Add();
    tensor.set_name(meta.name);
    tensor.set_datatype(meta.datatype);
    tensor.mutable_shape()->Add(meta.shape.begin(), meta.shape.end());
  }
}

template <typename Tensors>
void add_config(const ModelVersion& version, const std::vector<TensorMeta>& metas, Tensors& tensors) {
  for (const TensorMeta& meta : metas) {
    auto& tensor = *tensors.Add();
    tensor.set_name(meta.name);
    tensor.set_data_type(config_type(meta));
    const Shape dims = version.config_shape(meta);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
  }
}

void fill_config(const ModelVersion& version, pb::ModelConfig& config) {
  const Entry& entry = version.default_entry();
  config.set_name(version.model());
  config.set_platform(kPlatform);
  config.set_backend(kBackend);
  config.mutable_version_policy()->mutable_all();
  config.set_max_batch_size(static_cast<std::int32_t>(std::min<std::int64_t>(version.max_batch_size(), INT32_MAX)));
  add_config(version, entry.inputs, *config.mutable_input());
  add_config(version, entry.outputs, *config.mutable_output());
  auto& group = *config.add_instance_group();
  group.set_name(version.model());
  group.set_kind(version.on_gpu() ? pb::ModelInstanceGroup::KIND_GPU : pb::ModelInstanceGroup::KIND_CPU);
  group.set_count(version.sessions());
  if (version.max_batch_size() > 0) {
    const auto delay = version.options().max_delay.count();
    config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(static_cast<std::uint64_t>(delay));
  }
  if (version.has_states()) {
    const auto idle = std::chrono::microseconds(version.options().sequence_idle).count();
    config.mutable_sequence_batching()->set_max_sequence_idle_microseconds(static_cast<std::uint64_t>(idle));
  }
  (*config.mutable_parameters())["target"].set_string_value(version.info().target);
  (*config.mutable_parameters())["entries"].set_string_value(version.entry_names());
}

void fill(const Duration& from, pb::StatisticDuration& to) {
  to.set_count(from.count);
  to.set_ns(from.ns);
}

void fill_statistics(const ModelVersion& version, pb::ModelStatistics& to) {
  const StatisticsSnapshot s = version.statistics();
  to.set_name(version.model());
  to.set_version(version.version());
  to.set_last_inference(s.last_inference_ms);
  to.set_inference_count(s.inference_count);
  to.set_execution_count(s.execution_count);
  auto& all = *to.mutable_inference_stats();
  fill(s.success, *all.mutable_success());
  fill(s.fail, *all.mutable_fail());
  fill(s.queue, *all.mutable_queue());
  fill(s.compute_input, *all.mutable_compute_input());
  fill(s.compute_infer, *all.mutable_compute_infer());
  fill(s.compute_output, *all.mutable_compute_output());
  fill({}, *all.mutable_cache_hit());
  fill({}, *all.mutable_cache_miss());
  for (const auto& [rows, durations] : s.batches) {
    auto& batch = *to.add_batch_stats();
    batch.set_batch_size(static_cast<std::uint64_t>(rows));
    fill(durations.compute_input, *batch.mutable_compute_input());
    fill(durations.compute_infer, *batch.mutable_compute_infer());
    fill(durations.compute_output, *batch.mutable_compute_output());
  }
}

template <typename In>
const std::string& model_of(const In& in) {
  return in.model_name().empty() ? in.repository_name() : in.model_name();
}

}  // namespace

Failure Answers::answer(const pb::ServerLiveRequest&, pb::ServerLiveResponse& out) const {
  out.set_live(repository_.fault().empty());
  return std::nullopt;
}

Failure Answers::answer(const pb::ServerReadyRequest&, pb::ServerReadyResponse& out) const {
  out.set_ready(repository_.ready());
  return std::nullopt;
}

Failure Answers::answer(const pb::ModelReadyRequest& in, pb::ModelReadyResponse& out) const {
  auto version = repository_.find(in.name(), in.version());
  out.set_ready(version.ok());
  if (version.ok() || version.error().code == Code::kNotReady) return std::nullopt;
  return version.error();
}

Failure Answers::answer(const pb::ServerMetadataRequest&, pb::ServerMetadataResponse& out) const {
  const ServerInfo& info = server_info();
  out.set_name(info.name);
  out.set_version(info.version);
  for (const std::string& extension : info.extensions) out.add_extensions(extension);
  return std::nullopt;
}

Failure Answers::answer(const pb::ModelMetadataRequest& in, pb::ModelMetadataResponse& out) const {
  auto version = repository_.find(in.name(), in.version());
  if (!version.ok()) return version.error();
  auto ready = repository_.versions(in.name());
  if (!ready.ok()) return ready.error();
  out.set_name((*version)->model());
  for (const auto& one : *ready) out.add_versions(one->version());
  out.set_platform(kPlatform);
  add_metadata((*version)->default_entry().inputs, *out.mutable_inputs());
  add_metadata((*version)->default_entry().outputs, *out.mutable_outputs());
  return std::nullopt;
}

Failure Answers::answer(const pb::ModelConfigRequest& in, pb::ModelConfigResponse& out) const {
  auto version = repository_.find(in.name(), in.version());
  if (!version.ok()) return version.error();
  fill_config(**version, *out.mutable_config());
  return std::nullopt;
}

// Without a name all models, without a version all versions, as the protocol has it.
Failure Answers::answer(const pb::ModelStatisticsRequest& in, pb::ModelStatisticsResponse& out) const {
  if (in.name().empty()) {
    for (const auto& version : repository_.all()) fill_statistics(*version, *out.add_model_stats());
    return std::nullopt;
  }
  auto version = repository_.find(in.name(), in.version());
  if (!version.ok()) return version.error();
  auto ready = repository_.versions(in.name());
  if (!ready.ok()) return ready.error();
  if (!in.version().empty()) ready = std::vector{*version};
  for (const auto& one : *ready) fill_statistics(*one, *out.add_model_stats());
  return std::nullopt;
}

Failure Answers::answer(const pb::RepositoryIndexRequest& in, pb::RepositoryIndexResponse& out) const {
  for (const IndexEntry& row : repository_.index(in.ready())) {
    auto& model = *out.add_models();
    model.set_name(row.name);
    model.set_version(row.version);
    model.set_state(row.state);
    model.set_reason(row.reason);
  }
  return std::nullopt;
}

Failure Answers::answer(const pb::SystemSharedMemoryStatusRequest& in,
                        pb::SystemSharedMemoryStatusResponse& out) const {
  auto regions = shared_.list(caller_.name, in.name());
  if (!regions.ok()) return regions.error();
  for (const Region& region : *regions) {
    auto& status = (*out.mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.nbytes);
  }
  return std::nullopt;
}

Failure Answers::answer(const pb::SystemSharedMemoryRegisterRequest& in,
                        pb::SystemSharedMemoryRegisterResponse&) const {
  return shared_.add({caller_.name, in.name(), in.key(), in.offset(), in.byte_size()});
}

Failure Answers::answer(const pb::SystemSharedMemoryUnregisterRequest& in,
                        pb::SystemSharedMemoryUnregisterResponse&) const {
  shared_.remove(caller_.name, in.name());
  return std::nullopt;
}

Failure Answers::answer(const pb::CudaSharedMemoryStatusRequest&, pb::CudaSharedMemoryStatusResponse&) const {
  return std::nullopt;
}

Failure Answers::answer(const pb::CudaSharedMemoryRegisterRequest&, pb::CudaSharedMemoryRegisterResponse&) const {
  return Error{Code::kUnsupported,
               "CUDA shared memory is not supported; use system shared memory or raw_input_contents"};
}

Failure Answers::answer(const pb::CudaSharedMemoryUnregisterRequest&, pb::CudaSharedMemoryUnregisterResponse&) const {
  return std::nullopt;
}

Failure Answers::answer(const pb::RepositoryModelLoadRequest& in, pb::RepositoryModelLoadResponse& out) const {
  for (const auto& [name, value] : in.parameters()) {
    if (Failure refused = check_load_parameter(name)) return refused;
  }
  if (Failure failed = repository_.load(model_of(in))) return failed;
  if (!in.model_name().empty()) return std::nullopt;
  out.set_model_name(model_of(in));
  out.set_is_loaded(true);
  return std::nullopt;
}

Failure Answers::answer(const pb::RepositoryModelUnloadRequest& in, pb::RepositoryModelUnloadResponse& out) const {
  if (Failure failed = repository_.unload(model_of(in))) return failed;
  if (!in.model_name().empty()) return std::nullopt;
  out.set_model_name(model_of(in));
  out.set_is_unloaded(true);
  return std::nullopt;
}

}  // namespace hardtack::serve::rpc
