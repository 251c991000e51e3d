#include "server/http/pages.h"

#include "server/core/protocol.h"
#include "server/http/json_writer.h"

namespace hardtack::serve::http {

namespace {

void write_tensors(JsonWriter& json, const std::vector<TensorMeta>& metas) {
  json.array([&] {
    for (const TensorMeta& meta : metas) {
      json.object([&] {
        json.member("name", meta.name);
        json.member("datatype", meta.datatype);
        json.member("shape", meta.shape);
      });
    }
  });
}

void write_config_tensors(JsonWriter& json, const ModelVersion& version, const std::vector<TensorMeta>& metas) {
  json.array([&] {
    for (const TensorMeta& meta : metas) {
      json.object([&] {
        json.member("name", meta.name);
        json.member("data_type", "TYPE_" + std::string(meta.datatype));
        json.member("dims", version.config_shape(meta));
      });
    }
  });
}

void write_duration(JsonWriter& json, const char* name, const Duration& duration) {
  json.key(name);
  json.object([&] {
    json.member("count", duration.count);
    json.member("ns", duration.ns);
  });
}

void write_parameter(JsonWriter& json, const char* name, std::string_view text) {
  json.key(name);
  json.object([&] { json.member("string_value", text); });
}

void write_statistics(JsonWriter& json, const ModelVersion& version) {
  const StatisticsSnapshot s = version.statistics();
  json.object([&] {
    json.member("name", version.model());
    json.member("version", version.version());
    json.member("last_inference", s.last_inference_ms);
    json.member("inference_count", s.inference_count);
    json.member("execution_count", s.execution_count);
    json.key("inference_stats");
    json.object([&] {
      write_duration(json, "success", s.success);
      write_duration(json, "fail", s.fail);
      write_duration(json, "queue", s.queue);
      write_duration(json, "compute_input", s.compute_input);
      write_duration(json, "compute_infer", s.compute_infer);
      write_duration(json, "compute_output", s.compute_output);
      write_duration(json, "cache_hit", {});
      write_duration(json, "cache_miss", {});
    });
    json.key("batch_stats");
    json.array([&] {
      for (const auto& [rows, batch] : s.batches) {
        json.object([&, rows = rows, &batch = batch] {
          json.member("batch_size", rows);
          write_duration(json, "compute_input", batch.compute_input);
          write_duration(json, "compute_infer", batch.compute_infer);
          write_duration(json, "compute_output", batch.compute_output);
        });
      }
    });
    json.key("memory_usage");
    json.array([] {});
  });
}

void write_config(JsonWriter& json, const ModelVersion& version) {
  const Entry& entry = version.default_entry();
  json.member("name", version.model());
  json.member("platform", kPlatform);
  json.member("backend", kBackend);
  json.key("version_policy");
  json.object([&] {
    json.key("all");
    json.object([] {});
  });
  json.member("max_batch_size", version.max_batch_size());
  json.key("input");
  write_config_tensors(json, version, entry.inputs);
  json.key("output");
  write_config_tensors(json, version, entry.outputs);
  json.key("instance_group");
  json.array([&] {
    json.object([&] {
      json.member("name", version.model());
      json.member("kind", version.on_gpu() ? "KIND_GPU" : "KIND_CPU");
      json.member("count", version.sessions());
    });
  });
  if (version.max_batch_size() > 0) {
    json.key("dynamic_batching");
    json.object([&] { json.member("max_queue_delay_microseconds", version.options().max_delay.count()); });
  }
  if (version.has_states()) {
    json.key("sequence_batching");
    json.object([] {});
  }
  json.key("parameters");
  json.object([&] {
    write_parameter(json, "target", version.info().target);
    write_parameter(json, "entries", version.entry_names());
  });
}

}  // namespace

std::string server_page() {
  const ServerInfo& info = server_info();
  JsonWriter json;
  json.object([&] {
    json.member("name", info.name);
    json.member("version", info.version);
    json.member("extensions", info.extensions);
  });
  return json.take();
}

std::string metadata_page(const ModelVersion& version, const std::vector<std::shared_ptr<ModelVersion>>& ready) {
  const Entry& entry = version.default_entry();
  JsonWriter json;
  json.object([&] {
    json.member("name", version.model());
    json.key("versions");
    json.array([&] {
      for (const auto& one : ready) json.value(one->version());
    });
    json.member("platform", kPlatform);
    json.key("inputs");
    write_tensors(json, entry.inputs);
    json.key("outputs");
    write_tensors(json, entry.outputs);
  });
  return json.take();
}

std::string config_page(const ModelVersion& version) {
  JsonWriter json;
  json.object([&] { write_config(json, version); });
  return json.take();
}

std::string statistics_page(const std::vector<std::shared_ptr<ModelVersion>>& versions) {
  JsonWriter json;
  json.object([&] {
    json.key("model_stats");
    json.array([&] {
      for (const auto& version : versions) write_statistics(json, *version);
    });
  });
  return json.take();
}

std::string index_page(const std::vector<IndexEntry>& rows) {
  JsonWriter json;
  json.array([&] {
    for (const IndexEntry& row : rows) {
      json.object([&] {
        json.member("name", row.name);
        json.member("version", row.version);
        json.member("state", row.state);
        json.member("reason", row.reason);
      });
    }
  });
  return json.take();
}

std::string regions_page(const std::vector<Region>& regions) {
  JsonWriter json;
  json.array([&] {
    for (const Region& region : regions) {
      json.object([&] {
        json.member("name", region.name);
        json.member("key", region.key);
        json.member("offset", region.offset);
        json.member("byte_size", region.nbytes);
      });
    }
  });
  return json.take();
}

}  // namespace hardtack::serve::http
