// What the protocol tells about a model, as JSON text.
#ifndef HARDTACK_SERVER_HTTP_PAGES_H
#define HARDTACK_SERVER_HTTP_PAGES_H

#include <memory>
#include <string>
#include <vector>

#include "server/core/model_version.h"
#include "server/core/repository.h"

namespace hardtack::serve::http {

std::string server_page();
/// `ready`: all versions that serve.
std::string metadata_page(const ModelVersion& version, const std::vector<std::shared_ptr<ModelVersion>>& ready);
std::string config_page(const ModelVersion& version);
std::string statistics_page(const std::vector<std::shared_ptr<ModelVersion>>& versions);
std::string index_page(const std::vector<IndexEntry>& rows);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_PAGES_H
