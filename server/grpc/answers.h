// Everything the service answers at once: health, metadata, configuration, statistics, the index, shared memory.
#ifndef HARDTACK_SERVER_GRPC_ANSWERS_H
#define HARDTACK_SERVER_GRPC_ANSWERS_H

#include "inference.pb.h"
#include "server/core/access.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve::rpc {

namespace pb = ::inference;

/// What one caller is told: an answer() for each method.
class Answers {
 public:
  Answers(Repository& repository, SharedMemory& shared, const Caller& caller)
      : repository_(repository), shared_(shared), caller_(caller) {}

  Failure answer(const pb::ServerLiveRequest& in, pb::ServerLiveResponse& out) const;
  Failure answer(const pb::ServerReadyRequest& in, pb::ServerReadyResponse& out) const;
  Failure answer(const pb::ModelReadyRequest& in, pb::ModelReadyResponse& out) const;
  Failure answer(const pb::ServerMetadataRequest& in, pb::ServerMetadataResponse& out) const;
  Failure answer(const pb::ModelMetadataRequest& in, pb::ModelMetadataResponse& out) const;
  Failure answer(const pb::ModelConfigRequest& in, pb::ModelConfigResponse& out) const;
  Failure answer(const pb::ModelStatisticsRequest& in, pb::ModelStatisticsResponse& out) const;
  Failure answer(const pb::RepositoryIndexRequest& in, pb::RepositoryIndexResponse& out) const;
  Failure answer(const pb::SystemSharedMemoryStatusRequest& in, pb::SystemSharedMemoryStatusResponse& out) const;
  Failure answer(const pb::SystemSharedMemoryRegisterRequest& in, pb::SystemSharedMemoryRegisterResponse& out) const;
  Failure answer(const pb::SystemSharedMemoryUnregisterRequest& in,
                 pb::SystemSharedMemoryUnregisterResponse& out) const;
  Failure answer(const pb::CudaSharedMemoryStatusRequest& in, pb::CudaSharedMemoryStatusResponse& out) const;
  Failure answer(const pb::CudaSharedMemoryRegisterRequest& in, pb::CudaSharedMemoryRegisterResponse& out) const;
  Failure answer(const pb::CudaSharedMemoryUnregisterRequest& in, pb::CudaSharedMemoryUnregisterResponse& out) const;
  /// These two take as long as loading takes.
  Failure answer(const pb::RepositoryModelLoadRequest& in, pb::RepositoryModelLoadResponse& out) const;
  Failure answer(const pb::RepositoryModelUnloadRequest& in, pb::RepositoryModelUnloadResponse& out) const;

 private:
  Repository& repository_;
  SharedMemory& shared_;
  const Caller& caller_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_ANSWERS_H
