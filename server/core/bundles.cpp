#include "server/core/bundles.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

namespace hardtack::serve {

namespace {

namespace fs = std::filesystem;

bool is_model_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.size() <= 200 &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; });
}

// The bundle and the weights that an export puts beside it.
std::string stamp_of(const fs::path& bundle) {
  std::string stamp = stamp_of_file(bundle);
  fs::path weights = bundle;
  weights.replace_extension(".safetensors");
  std::error_code none;
  if (fs::exists(weights, none)) stamp += " " + stamp_of_file(weights);
  return stamp;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// The entries of a folder, sorted; hidden ones (editors, Kubernetes' ..data) are no models. Not by directory_iterator:
// libstdc++'s takes memory where it may not throw.
std::vector<fs::path> entries_of(const fs::path& folder, std::error_code& failed) {
  std::vector<fs::path> paths;
  errno = 0;
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  while (open != nullptr) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') paths.push_back(folder / entry->d_name);
  }
  failed.assign(errno, std::generic_category());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_bundle(const fs::path& path) {
  std::error_code none;
  return path.extension() == ".pkg" && fs::is_regular_file(path, none);
}

// A folder that went away meanwhile has no entries.
std::vector<fs::path> entries_of(const fs::path& folder, std::string& unreadable) {
  std::error_code failed;
  std::vector<fs::path> paths = entries_of(folder, failed);
  if (failed && failed != std::errc::no_such_file_or_directory) {
    unreadable = folder.string() + " cannot be read: " + failed.message();
  }
  return paths;
}

// The only bundle of a folder; false when there is none.
bool bundle_in(const fs::path& folder, Found& found, std::string& unreadable) {
  std::vector<fs::path> bundles;
  for (const fs::path& path : entries_of(folder, unreadable)) {
    if (is_bundle(path)) bundles.push_back(path);
  }
  if (bundles.empty()) return false;
  found.path = bundles[0].string();
  for (const fs::path& path : bundles) found.stamp += stamp_of(path) + " ";
  if (bundles.size() > 1) {
    found.problem = folder.string() + " has " + std::to_string(bundles.size()) + " bundles (" +
                    bundles[0].filename().string() + ", " + bundles[1].filename().string() +
                    "); keep one in a version's folder";
  }
  return true;
}

FoundVersions versions_in(const fs::path& model, std::string& unreadable) {
  FoundVersions versions;
  for (const fs::path& path : entries_of(model, unreadable)) {
    std::error_code none;
    const std::int64_t number = version_number(path.filename().string());
    Found found;
    if (number > 0 && fs::is_directory(path, none) && bundle_in(path, found, unreadable)) versions[number] = found;
  }
  Found flat;
  if (!bundle_in(model, flat, unreadable)) return versions;
  if (!versions.empty()) {
    flat.problem = model.string() + " has both version folders and a bundle of its own (" +
                   fs::path(flat.path).filename().string() + "); move it into a version folder";
    for (auto& [number, version] : versions) version.problem = flat.problem;
    return versions;
  }
  versions[1] = flat;
  return versions;
}

}  // namespace

std::string stamp_of_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "gone";
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + ":" + std::to_string(status.st_size) +
         ":" + std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

std::int64_t version_number(const std::string& text) {
  const bool digits =
      !text.empty() && text.size() <= 18 && text[0] != '0' && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoll(text) : 0;
}

Outcome<FoundModels> find_bundles(const std::string& path, std::map<std::string, std::string>* unreadable) {
  std::error_code failed;
  FoundModels models;
  if (fs::is_regular_file(path, failed)) {
    const std::string name = fs::path(path).stem().string();
    if (!is_model_name(name)) {
      return Error{Code::kInvalid, "\"" + name + "\" is no name for a model; use letters, digits, '.', '_' and '-'"};
    }
    models[name][1] = Found{path, stamp_of(path), ""};
    return models;
  }
  const std::vector<fs::path> entries = entries_of(path, failed);
  if (failed) return Error{Code::kInvalid, path + " cannot be read: " + failed.message()};
  for (const fs::path& entry : entries) {
    std::error_code none;
    if (fs::is_directory(entry, none)) {
      const std::string name = entry.filename().string();
      std::string why;
      FoundVersions versions = versions_in(entry, why);
      if (!is_model_name(name)) continue;
      if (!why.empty() && unreadable != nullptr) {
        (*unreadable)[name] = why;
      } else if (!versions.empty()) {
        models[name] = std::move(versions);
      }
    }
  }
  for (const fs::path& entry : entries) {
    const std::string name = entry.stem().string();
    if (!is_bundle(entry) || !is_model_name(name)) continue;
    Found found{entry.string(), stamp_of(entry), ""};
    const auto [place, fresh] = models.try_emplace(name);
    if (fresh) {
      place->second[1] = found;
    } else {
      for (auto& [number, version] : place->second) {
        version.problem = "both " + entry.string() + " and a folder of that name hold model \"" + name + "\"; keep one";
      }
    }
  }
  return models;
}

}  // namespace hardtack::serve
