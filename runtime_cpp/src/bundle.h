// A bundle that has been opened: container, manifest and weight headers are read and agree. Nothing of it has been run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "manifest.h"
#include "source.h"
#include "zip.h"

namespace hardtack::rt {

/// Where the bytes of a constant start, in the bundle or in the external weights file.
struct ConstantPlace {
  bool external = false;
  uint64_t offset = 0;
};

/// What holds the constants: the bundle, its external weights, or both. Null where there are none.
struct WeightBytes {
  std::shared_ptr<const Bytes> bundle, external;

  const uint8_t* at(const ConstantPlace& place) const {
    return (place.external ? external : bundle)->data() + place.offset;
  }
};

/// Opens the external weights that a manifest names.
using OpenWeights = std::function<Status(const ManifestMember& external, std::unique_ptr<Source>* source)>;

/// Opens external weights at `path`; if that is null, beside the bundle at `bundle_path`, null for one in memory.
OpenWeights weights_opener(const char* path, const char* bundle_path);

class Bundle {
 public:
  /// Container and manifest; no weights yet.
  static Status open(std::unique_ptr<Source> source, Bundle* bundle);
  /// Opens the weights outside of the bundle, where there are.
  Status open_external(const OpenWeights& open_weights);
  /// Takes the bytes of all weights; what is read from now on is read from these. With `hashed`, they are such as nobody
  /// can change, with `copy` they are in memory in any case.
  Status hold(bool hashed, bool copy, WeightBytes* bytes);
  /// Reads the weights' headers: where each constant lies.
  Status read_weights();
  /// HT_BAD_BUNDLE where reading the weights would read far more than the files hold: holes of a sparse file.
  Status check_weights_are_there() const;

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_text() const { return manifest_text_; }
  const std::vector<Member>& members() const { return members_; }
  const Source& source() const { return *source_; }
  uint64_t weights_nbytes() const;
  const ConstantPlace& constant_place(size_t constant) const { return constant_places_[constant]; }
  /// Null when the weights are in the bundle.
  const Source* external() const { return external_.get(); }
  /// Whether the files are still those that were opened.
  Status check_unchanged() const;

  uint64_t file_nbytes() const { return file_nbytes_; }
  /// Lets go of the files or memory that the bundle was read from.
  void close_sources() { source_.reset(), external_.reset(); }

  /// Reads a member and checks its CRC-32 and its SHA-256.
  Status read(const char* member, std::string* data) const;
  /// Checks CRC-32 and SHA-256 of the members that `load` does not read: weights only, or all.
  Status verify_members(bool weights_only) const;

 private:
  Status check_members() const;
  Status check_holes() const;
  bool holds_weights() const;
  Status verify_member(const Member& member, const ManifestMember& listed) const;
  Status verify_external() const;

  std::unique_ptr<Source> source_, external_;
  uint64_t file_nbytes_ = 0;
  std::vector<Member> members_;
  NameIndex member_index_;
  std::string manifest_text_;
  Manifest manifest_;
  std::vector<ConstantPlace> constant_places_;
};

/// What targets are compared with: the device that a caller chose, and what it is.
struct Machine {
  std::string device = "cpu";  // "cpu" or "cuda"
  int arch = 0;                // cuda: 90 for sm_90
  std::string name;            // cuda: "NVIDIA H200"
};

/// The target that `wanted` names, or the first that the machine can run; HT_NO_TARGET otherwise. With `any`, a named
/// target need not be runnable, and the first one will do where none is.
Status choose_target(const Manifest& manifest, const Machine& machine, const char* wanted, bool any, size_t* target);
/// Whether the target is for the machine's device at all.
bool is_for(const ManifestTarget& target, const Machine& machine);
/// What the machine lacks for a target, separated by ", "; empty when it can run it.
std::string missing_features(const ManifestTarget& target, const Machine& machine);

}  // namespace hardtack::rt
