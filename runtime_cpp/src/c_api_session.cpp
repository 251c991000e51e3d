#include "c_api.h"

using hardtack::rt::error;
using hardtack::rt::guarded;
using hardtack::rt::read_options;
using hardtack::rt::Session;
using hardtack::rt::SessionConfig;
using hardtack::rt::Status;
using hardtack::rt::ThreadPool;
using hardtack::rt::write_info;

struct ht_session {
  std::unique_ptr<Session> session;
  std::atomic<bool> busy{false};
};

namespace {

constexpr int32_t kMaxWorkers = 1024;  // workspaces of all workers together stay below 2^58 bytes

Status make_config(const ht_session_options& options, bool needs_threads, SessionConfig* config) {
  if (options.parallel != nullptr) {
    if (options.parallel->run == nullptr || options.parallel->nworkers < 1 ||
        options.parallel->nworkers > kMaxWorkers) {
      return error(HT_INVALID_ARGUMENT, "ht_session_options.parallel: run is null, or nworkers is not 1 to %d",
                   kMaxWorkers);
    }
    config->parallel = *options.parallel;
  } else if (options.pool != nullptr) {
    config->pool = options.pool->pool;
  } else if (needs_threads) {
    HT_RETURN_IF_ERROR(ThreadPool::create(options.num_threads, &config->pool));
  }
  if (config->pool != nullptr) config->parallel = *config->pool->parallel();
  if ((options.allocator.allocate == nullptr) != (options.allocator.release == nullptr)) {
    return error(HT_INVALID_ARGUMENT,
                 "ht_session_options.allocator: allocate and release must both be set, or neither");
  }
  config->allocator = options.allocator;
  config->max_nbytes = options.max_nbytes;
  if (options.max_cached_shapes < 0)
    return error(HT_INVALID_ARGUMENT, "ht_session_options.max_cached_shapes is negative");
  if (options.graphs < HT_GRAPHS_AUTO || options.graphs > HT_GRAPHS_OFF || options.outputs < HT_OUTPUTS_FOLLOW ||
      options.outputs > HT_OUTPUTS_ON_DEVICE) {
    return error(HT_INVALID_ARGUMENT, "ht_session_options: graphs or outputs is none of its enum's values");
  }
  config->stream = options.stream;
  config->asynchronous = options.asynchronous != 0;
  config->graphs = options.graphs == HT_GRAPHS_AUTO;
  config->outputs = options.outputs;
  if (options.max_cached_shapes > 0) config->max_cached_shapes = static_cast<size_t>(options.max_cached_shapes);
  return Status();
}

// Runs `body` unless another thread is in this session: that is a bug of the caller which would corrupt results
// silently.
template <typename Body>
ht_status* exclusively(ht_session* session, const Body& body) {
  if (session == nullptr) return error(HT_INVALID_ARGUMENT, "the session is null").release();
  if (session->busy.exchange(true, std::memory_order_acquire)) {
    return error(HT_INVALID_ARGUMENT, "the session is in use by another thread; give each thread a session of its own")
        .release();
  }
  ht_status* status = guarded([&] { return body(*session->session); });
  session->busy.store(false, std::memory_order_release);
  return status;
}

}  // namespace

extern "C" {

ht_status* ht_pool_create(int32_t num_threads, ht_pool** pool) {
  return guarded([&]() -> Status {
    if (pool == nullptr) return error(HT_INVALID_ARGUMENT, "ht_pool_create: pool is null");
    std::shared_ptr<ThreadPool> created;
    HT_RETURN_IF_ERROR(ThreadPool::create(num_threads, &created));
    *pool = new ht_pool{std::move(created)};
    return Status();
  });
}

void ht_pool_free(ht_pool* pool) { delete pool; }

const HtParallel* ht_pool_parallel(const ht_pool* pool) { return pool->pool->parallel(); }

ht_status* ht_session_create(ht_model* model, const ht_session_options* given, ht_session** session) {
  return guarded([&]() -> Status {
    if (model == nullptr || session == nullptr) {
      return error(HT_INVALID_ARGUMENT, "ht_session_create: model or session is null");
    }
    ht_session_options options;
    SessionConfig config;
    HT_RETURN_IF_ERROR(read_options(given, "ht_session_options", &options));
    const hardtack::rt::Device* device = model->model->device();
    HT_RETURN_IF_ERROR(make_config(options, device == nullptr || !device->stages_host(), &config));
    auto created = std::make_unique<ht_session>();
    HT_RETURN_IF_ERROR(Session::create(model->model, std::move(config), &created->session));
    *session = created.release();
    return Status();
  });
}

void ht_session_free(ht_session* session) { delete session; }

ht_status* ht_session_run(ht_session* session, const char* entry, const ht_tensor* inputs, size_t num_inputs,
                          ht_tensor* outputs, size_t num_outputs) {
  return exclusively(session, [&](Session& s) { return s.run(entry, inputs, num_inputs, outputs, num_outputs); });
}

ht_status* ht_session_bind(ht_session* session, const char* entry, const ht_tensor* inputs, size_t num_inputs,
                           ht_tensor* outputs, size_t num_outputs) {
  return exclusively(session, [&](Session& s) { return s.bind(entry, inputs, num_inputs, outputs, num_outputs); });
}

ht_status* ht_session_reset(ht_session* session) {
  return exclusively(session, [](Session& s) { return s.reset(); });
}

ht_status* ht_session_synchronize(ht_session* session) {
  return exclusively(session, [](Session& s) { return s.synchronize(); });
}

ht_status* ht_session_set_stream(ht_session* session, void* stream) {
  return exclusively(session, [&](Session& s) { return s.set_stream(stream); });
}

void* ht_session_stream(const ht_session* session) { return session->session->stream(); }

ht_status* ht_session_read_state(ht_session* session, const char* name, void* data, size_t nbytes) {
  return exclusively(session, [&](Session& s) { return s.read_state(name, data, nbytes); });
}

ht_status* ht_session_write_state(ht_session* session, const char* name, const void* data, size_t nbytes) {
  return exclusively(session, [&](Session& s) { return s.write_state(name, data, nbytes); });
}

ht_status* ht_session_trim(ht_session* session) {
  return exclusively(session, [](Session& s) {
    s.trim();
    return Status();
  });
}

ht_status* ht_session_memory(const ht_session* session, ht_memory_info* info) {
  return exclusively(const_cast<ht_session*>(session), [&](Session& s) -> Status {
    if (info == nullptr) return error(HT_INVALID_ARGUMENT, "ht_session_memory: info is null");
    ht_memory_info found = {};
    s.memory(&found);
    return write_info(found, "ht_memory_info", info);
  });
}

void ht_session_interrupt(ht_session* session) {
  if (session != nullptr) session->session->interrupt();
}

ht_status* ht_session_set_observer(ht_session* session, ht_observer observer, void* user) {
  return exclusively(session, [&](Session& s) {
    s.set_observer(observer, user);
    return Status();
  });
}

}  // extern "C"
