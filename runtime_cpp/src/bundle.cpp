#include "bundle.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "checked.h"
#include "cpu_features.h"
#include "hash.h"
#include "safetensors.h"

namespace hardtack::rt {
namespace {

constexpr uint64_t kMaxTextNbytes = uint64_t{256} << 20;  // manifest and plans: more is no model's
constexpr uint64_t kMaxCodeHoleNbytes = uint64_t{16} << 20;
constexpr uint64_t kMaxHoleNbytes = uint64_t{1} << 30;

Status sparse(uint64_t holes, const char* where, uint64_t limit) {
  return error(HT_BAD_BUNDLE,
               "%llu bytes %s are holes of a sparse file; at most %llu may be: copy the whole file (cp --sparse=never)",
               static_cast<unsigned long long>(holes), where, static_cast<unsigned long long>(limit));
}

bool is_weights(const Member& member) { return member_group(member.name) == 5; }

// A member with weights, or the external file.
struct WeightsFile {
  const char* name = "";
  bool external = false;
  uint64_t offset = 0;
  uint64_t nbytes = 0;
  WeightsHeader header;
};

Status read_weights_header(const Source& source, WeightsFile* file) {
  uint8_t first[8] = {};
  if (file->nbytes < 8) return error(HT_BAD_BUNDLE, "member %s: too short", file->name);
  HT_RETURN_IF_ERROR(source.read(file->offset, 8, first));
  uint64_t nbytes = 0;
  HT_RETURN_IF_ERROR(weights_header_nbytes(first, file->nbytes, file->name, &nbytes));
  if (source.hole_nbytes(file->offset, nbytes) > 0) {
    return error(HT_BAD_BUNDLE, "member %s: a part of its header is a hole of a sparse file", file->name);
  }
  std::string text(nbytes, '\0');
  HT_RETURN_IF_ERROR(source.read(file->offset, nbytes, text.data()));
  return parse_weights_header(text, file->nbytes, file->name, &file->header);
}

// SHA-256 and CRC-32 of a part of a source, read in pieces.
Status digest(const Source& source, uint64_t offset, uint64_t total, std::string* sha256, uint32_t* crc) {
  constexpr uint64_t kChunk = 1 << 20;
  std::string chunk(std::min(kChunk, total), '\0');
  Sha256 hash;
  *crc = 0;
  for (uint64_t at = 0; at < total; at += kChunk) {
    const uint64_t nbytes = std::min(kChunk, total - at);
    HT_RETURN_IF_ERROR(source.read(offset + at, nbytes, chunk.data()));
    hash.update(chunk.data(), nbytes);
    *crc = crc32(*crc, chunk.data(), nbytes);
  }
  *sha256 = hex(hash.finish());
  return Status();
}

}  // namespace

OpenWeights weights_opener(const char* path, const char* bundle_path) {
  return [path, bundle_path](const ManifestMember& external, std::unique_ptr<Source>* source) -> Status {
    std::string where = path == nullptr ? external.name : path;
    if (path == nullptr && bundle_path == nullptr) {
      return error(HT_INVALID_ARGUMENT,
                   "the bundle keeps its weights in \"%s\"; name that file in ht_load_options.weights_path",
                   external.name);
    }
    if (path == nullptr) {
      const std::string_view bundle = bundle_path;
      const size_t slash = bundle.rfind('/');
      if (slash != std::string_view::npos) where = std::string(bundle.substr(0, slash + 1)) + external.name;
    }
    Status opened = open_file(where, source);
    if (!opened.ok()) {
      return error(HT_IO, "%s; the bundle keeps its weights there, %llu bytes", opened.message(),
                   static_cast<unsigned long long>(external.nbytes));
    }
    if ((*source)->nbytes() == external.nbytes) return Status();
    return error(HT_BAD_BUNDLE, "%s has %llu bytes; the bundle's weights have %llu", where.c_str(),
                 static_cast<unsigned long long>((*source)->nbytes()),
                 static_cast<unsigned long long>(external.nbytes));
  };
}

Status Bundle::open(std::unique_ptr<Source> source, Bundle* bundle) {
  bundle->file_nbytes_ = source->nbytes();
  bundle->source_ = std::move(source);
  HT_RETURN_IF_ERROR(read_zip(*bundle->source_, &bundle->members_));
  HT_RETURN_IF_ERROR(bundle->check_holes());
  for (size_t i = 0; i < bundle->members_.size(); ++i) {
    bundle->member_index_.emplace(bundle->members_[i].name, static_cast<uint32_t>(i));
  }
  const Member& manifest = bundle->members_.front();
  if (manifest.nbytes > kMaxTextNbytes) return error(HT_BAD_BUNDLE, "manifest.json: larger than 256 MiB");
  HT_RETURN_IF_ERROR(read_member(*bundle->source_, manifest, &bundle->manifest_text_));
  HT_RETURN_IF_ERROR(parse_manifest(bundle->manifest_text_, &bundle->manifest_));
  return bundle->check_members();
}

Status Bundle::open_external(const OpenWeights& open_weights) {
  return manifest_.has_external ? open_weights(manifest_.external, &external_) : Status();
}

// What is read into memory before its hash is known is there: text, code, and what lies between.
Status Bundle::check_holes() const {
  uint64_t end = 0;
  for (const Member& member : members_) {
    if (!is_weights(member)) end = member.data_offset + member.nbytes;
  }
  const uint64_t holes = source_->hole_nbytes(0, end);
  return holes <= kMaxCodeHoleNbytes ? Status() : sparse(holes, "before the weights", kMaxCodeHoleNbytes);
}

Status Bundle::check_weights_are_there() const {
  uint64_t holes = source_->hole_nbytes(0, source_->nbytes());
  if (external_ != nullptr) holes += external_->hole_nbytes(0, external_->nbytes());
  return holes <= kMaxHoleNbytes ? Status() : sparse(holes, "of the weights", kMaxHoleNbytes);
}

bool Bundle::holds_weights() const { return std::any_of(members_.begin(), members_.end(), is_weights); }

Status Bundle::hold(bool hashed, bool copy, WeightBytes* bytes) {
  if (hashed || copy) HT_RETURN_IF_ERROR(check_weights_are_there());
  const auto take = [&](std::unique_ptr<Source>* source, std::shared_ptr<const Bytes>* held) -> Status {
    const bool changes = !(*source)->is_immutable();
    HT_RETURN_IF_ERROR((*source)->hold(copy || (hashed && changes), held));
    // A mapping of a file that can change is not read from: it may end before its size.
    if (copy || hashed) *source = open_held(*held);
    return Status();
  };
  if (external_ != nullptr) HT_RETURN_IF_ERROR(take(&external_, &bytes->external));
  return external_ == nullptr || holds_weights() ? take(&source_, &bytes->bundle) : Status();
}

// The manifest lists every member but itself, in the archive's order.
Status Bundle::check_members() const {
  const std::vector<ManifestMember>& listed = manifest_.members;
  for (size_t i = 0; i < std::max(listed.size(), members_.size() - 1); ++i) {
    if (i >= listed.size()) {
      return error(HT_BAD_BUNDLE, "member %s is not in the manifest", members_[i + 1].name.c_str());
    }
    if (i + 1 >= members_.size() || members_[i + 1].name != listed[i].name) {
      return error(HT_BAD_BUNDLE, "manifest.json: member \"%s\" is not at its place in the archive", listed[i].name);
    }
    if (members_[i + 1].nbytes != listed[i].nbytes) {
      return error(HT_BAD_BUNDLE, "member %s: %llu bytes, the manifest says %llu", listed[i].name,
                   static_cast<unsigned long long>(members_[i + 1].nbytes),
                   static_cast<unsigned long long>(listed[i].nbytes));
    }
  }
  return Status();
}

Status Bundle::read_weights() {
  std::vector<WeightsFile> weights;
  for (const Member& member : members_) {
    if (is_weights(member)) weights.push_back({member.name.c_str(), false, member.data_offset, member.nbytes, {}});
  }
  if (external_ != nullptr) weights.push_back({manifest_.external.name, true, 0, external_->nbytes(), {}});
  std::map<std::string_view, const WeightsFile*> by_name;
  for (WeightsFile& file : weights) {
    HT_RETURN_IF_ERROR(read_weights_header(file.external ? *external_ : *source_, &file));
    by_name.emplace(file.name, &file);
  }
  constant_places_.reserve(manifest_.constants.size());
  for (const ManifestArray& constant : manifest_.constants) {
    const auto found = by_name.find(constant.file);
    if (found == by_name.end()) {
      return error(HT_BAD_BUNDLE, "constant \"%s\": \"%s\" holds no weights", constant.name, constant.file);
    }
    const WeightsFile* file = found->second;
    const WeightTensor* tensor = file->header.find(constant.tensor);
    if (tensor == nullptr) {
      return error(HT_BAD_BUNDLE, "constant \"%s\": %s has no tensor \"%s\"", constant.name, constant.file,
                   constant.tensor);
    }
    if (tensor->dtype != constant.dtype || tensor->nbytes != static_cast<uint64_t>(constant.nbytes)) {
      return error(HT_BAD_BUNDLE, "constant \"%s\": dtype or size differ from tensor \"%s\" of %s", constant.name,
                   constant.tensor, constant.file);
    }
    constant_places_.push_back({file->external, file->offset + tensor->offset});
  }
  return Status();
}

uint64_t Bundle::weights_nbytes() const {
  uint64_t total = manifest_.has_external ? manifest_.external.nbytes : 0;
  for (const Member& member : members_) total += is_weights(member) ? member.nbytes : 0;
  return total;
}

Status Bundle::read(const char* name, std::string* data) const {
  const auto at = member_index_.find(name);
  const ManifestMember* listed = manifest_.find_member(name);
  if (at == member_index_.end() || listed == nullptr) return error(HT_BAD_BUNDLE, "no member \"%s\"", name);
  const Member& member = members_[at->second];
  if (member_group(member.name) == 1 && member.nbytes > kMaxTextNbytes) {
    return error(HT_BAD_BUNDLE, "member %s: larger than 256 MiB", name);
  }
  HT_RETURN_IF_ERROR(read_member(*source_, member, data));
  if (sha256_hex(data->data(), data->size()) != listed->sha256) {
    return error(HT_BAD_BUNDLE, "member %s: its SHA-256 is not the manifest's", name);
  }
  return Status();
}

Status Bundle::verify_members(bool weights_only) const {
  for (size_t i = 1; i < members_.size(); ++i) {
    if (weights_only && !is_weights(members_[i])) continue;
    HT_RETURN_IF_ERROR(verify_member(members_[i], manifest_.members[i - 1]));
  }
  return verify_external();
}

Status Bundle::verify_member(const Member& member, const ManifestMember& listed) const {
  std::string sha256;
  uint32_t crc = 0;
  HT_RETURN_IF_ERROR(digest(*source_, member.data_offset, member.nbytes, &sha256, &crc));
  if (crc != member.crc32) return error(HT_BAD_BUNDLE, "member %s: its CRC-32 is wrong", listed.name);
  if (sha256 != listed.sha256) {
    return error(HT_BAD_BUNDLE, "member %s: its SHA-256 is not the manifest's", listed.name);
  }
  return Status();
}

Status Bundle::verify_external() const {
  if (external_ == nullptr) return Status();
  std::string sha256;
  uint32_t crc = 0;
  HT_RETURN_IF_ERROR(digest(*external_, 0, external_->nbytes(), &sha256, &crc));
  if (sha256 == manifest_.external.sha256) return Status();
  return error(HT_BAD_BUNDLE, "external weights %s: their SHA-256 is not the manifest's", manifest_.external.name);
}

Status Bundle::check_unchanged() const {
  HT_RETURN_IF_ERROR(source_->check_unchanged());
  return external_ == nullptr ? Status() : external_->check_unchanged();
}

bool is_for(const ManifestTarget& target, const Machine& machine) {
  return machine.device == target.device && (machine.device == "cuda" || target.library != nullptr);
}

std::string missing_features(const ManifestTarget& target, const Machine& machine) {
  std::string missing;
  for (const char* feature : target.requirements) {
    int arch = 0;
    bool has = false;
    if (std::strcmp(target.device, "cpu") == 0)
      has = cpu_has(feature);
    else if (is_for(target, machine) && parse_arch(feature, &arch))
      // Code for sm_80 runs on the later ones of its generation; code for sm_90 and later is for that one alone.
      has = machine.arch == arch || (arch < 90 && machine.arch / 10 == arch / 10 && machine.arch > arch);
    if (!has) missing += (missing.empty() ? "" : ", ") + std::string(feature);
  }
  return missing;
}

namespace {

bool has_device_for(const ManifestTarget& target) {
  return std::strcmp(target.device, "cpu") == 0 || std::strcmp(target.device, "cuda") == 0;
}

}  // namespace

Status choose_target(const Manifest& manifest, const Machine& machine, const char* wanted, bool any, size_t* target) {
  const std::string here = machine.device == "cuda"
                               ? "; this device (" + machine.name + ") is sm_" + std::to_string(machine.arch)
                               : std::string();
  std::string reasons;
  for (size_t i = 0; i < manifest.targets.size(); ++i) {
    const ManifestTarget& t = manifest.targets[i];
    if (wanted != nullptr && std::strcmp(wanted, t.name) != 0) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(t.name);
      continue;
    }
    const bool right_device = is_for(t, machine);
    const std::string missing = missing_features(t, machine);
    if ((right_device && missing.empty()) || (any && wanted != nullptr)) return *target = i, Status();
    reasons += (reasons.empty() ? "" : "; ") + std::string(t.name) +
               (right_device ? " needs " + missing : " is for device " + std::string(t.device)) +
               (has_device_for(t) ? "" : ", which this Hardtack does not run");
    if (wanted == nullptr) continue;
    if (!has_device_for(t)) {
      return error(HT_NO_TARGET, "target %s is for device \"%s\"; this Hardtack runs cpu and cuda", t.name, t.device);
    }
    return right_device ? error(HT_NO_TARGET, "target %s needs %s, which this machine lacks%s", t.name, missing.c_str(),
                                here.c_str())
                        : error(HT_NO_TARGET, "target %s is for device \"%s\"", t.name, t.device);
  }
  if (wanted != nullptr) {
    return error(HT_NO_TARGET, "the bundle has no target \"%s\"; it has %s", wanted, reasons.c_str());
  }
  if (any) return *target = 0, Status();
  return error(HT_NO_TARGET, "nothing in the bundle runs on %s: %s%s",
               machine.device == "cpu" ? "this machine" : "this machine's CUDA device", reasons.c_str(), here.c_str());
}

}  // namespace hardtack::rt
