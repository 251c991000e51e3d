// What the protocol tells about models and shared memory, as JSON text.
#ifndef HARDTACK_SERVER_HTTP_PAGES_H
#define HARDTACK_SERVER_HTTP_PAGES_H

#include <memory>
#include <string>
#include <vector>

#include "server/core/model_version.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve::http {

std::string server_page();
/// `ready`: all versions that serve.
std::string metadata_page(const ModelVersion& version, const std::vector<std::shared_ptr<ModelVersion>>& ready);
std::string config_page(const ModelVersion& version);
std::string statistics_page(const std::vector<std::shared_ptr<ModelVersion>>& versions);
std::string index_page(const std::vector<IndexEntry>& rows);
std::string regions_page(const std::vector<Region>& regions);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_PAGES_H
