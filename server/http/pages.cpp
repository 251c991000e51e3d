#include "server/http/pages.h"

#include <nlohmann/json.hpp>

#include "server/core/protocol.h"

namespace hardtack::serve::http {

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json tensors(const std::vector<TensorMeta>& metas) {
  Json list = Json::array();
  for (const TensorMeta& meta : metas)
    list.push_back({{"name", meta.name}, {"datatype", meta.datatype}, {"shape", meta.shape}});
  return list;
}

Json config_tensors(const ModelVersion& version, const std::vector<TensorMeta>& metas) {
  Json list = Json::array();
  for (const TensorMeta& meta : metas) {
    list.push_back({{"name", meta.name},
                    {"data_type", "TYPE_" + std::string(meta.datatype)},
                    {"dims", version.config_shape(meta)}});
  }
  return list;
}

Json duration(const Duration& d) { return {{"count", d.count}, {"ns", d.ns}}; }

Json statistics(const ModelVersion& version) {
  const StatisticsSnapshot s = version.statistics();
  Json batches = Json::array();
  for (const auto& [rows, b] : s.batches) {
    batches.push_back({{"batch_size", rows},
                       {"compute_input", duration(b.compute_input)},
                       {"compute_infer", duration(b.compute_infer)},
                       {"compute_output", duration(b.compute_output)}});
  }
  return {{"name", version.model()},
          {"version", version.version()},
          {"last_inference", s.last_inference_ms},
          {"inference_count", s.inference_count},
          {"execution_count", s.execution_count},
          {"inference_stats",
           {{"success", duration(s.success)},
            {"fail", duration(s.fail)},
            {"queue", duration(s.queue)},
            {"compute_input", duration(s.compute_input)},
            {"compute_infer", duration(s.compute_infer)},
            {"compute_output", duration(s.compute_output)},
            {"cache_hit", duration({})},
            {"cache_miss", duration({})}}},
          {"batch_stats", batches},
          {"memory_usage", Json::array()}};
}

}  // namespace

std::string server_page() {
  const ServerInfo& info = server_info();
  return dump({{"name", info.name}, {"version", info.version}, {"extensions", info.extensions}});
}

std::string metadata_page(const ModelVersion& version, const std::vector<std::shared_ptr<ModelVersion>>& ready) {
  Json versions = Json::array();
  for (const auto& one : ready) versions.push_back(one->version());
  const Entry& entry = version.default_entry();
  return dump({{"name", version.model()},
               {"versions", versions},
               {"platform", kPlatform},
               {"inputs", tensors(entry.inputs)},
               {"outputs", tensors(entry.outputs)}});
}

std::string config_page(const ModelVersion& version) {
  const Entry& entry = version.default_entry();
  Json config = {{"name", version.model()},
                 {"platform", kPlatform},
                 {"backend", kBackend},
                 {"version_policy", {{"all", Json::object()}}},
                 {"max_batch_size", version.max_batch_size()},
                 {"input", config_tensors(version, entry.inputs)},
                 {"output", config_tensors(version, entry.outputs)},
                 {"instance_group", Json::array({{{"name", version.model()},
                                                  {"kind", version.on_gpu() ? "KIND_GPU" : "KIND_CPU"},
                                                  {"count", version.sessions()}}})}};
  if (version.max_batch_size() > 0) {
    config["dynamic_batching"] = {{"max_queue_delay_microseconds", version.options().max_delay.count()}};
  }
  if (version.has_states()) config["sequence_batching"] = Json::object();
  config["parameters"] = {{"target", {{"string_value", version.info().target}}}};
  config["parameters"]["entries"] = {{"string_value", version.entry_names()}};
  return dump(config);
}

std::string statistics_page(const std::vector<std::shared_ptr<ModelVersion>>& versions) {
  Json list = Json::array();
  for (const auto& version : versions) list.push_back(statistics(*version));
  return dump({{"model_stats", list}});
}

std::string index_page(const std::vector<IndexEntry>& rows) {
  Json list = Json::array();
  for (const IndexEntry& row : rows) {
    list.push_back({{"name", row.name}, {"version", row.version}, {"state", row.state}, {"reason", row.reason}});
  }
  return dump(list);
}

}  // namespace hardtack::serve::http
