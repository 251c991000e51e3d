// Writes bundles for the tests. What a broken bundle needs can be changed in every layer: manifest text, members,
// container.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/plan_text.h"
#include "support/zip_writer.h"

namespace hardtack::testing {

/// "dtype", "name", and shape and strides as the manifest spells them: {"3", "\"s0\""}.
std::string manifest_tensor(const std::string& dtype, const std::string& name, const std::vector<std::string>& shape,
                            const std::vector<std::string>& strides);

struct EntryText {
  std::string name = "forward";
  std::vector<std::string> inputs, outputs, syms;
  std::string in_tree = R"({"kind":"none"})", out_tree = R"({"kind":"none"})";
};

struct ConstantText {
  std::string dtype, name;
  std::vector<int64_t> shape;
  std::string bytes;
  std::string recipe = "null";  // JSON
};

class BundleText {
 public:
  /// One target, "cpu:test", that requires nothing, with the test kernels.
  BundleText();

  std::vector<EntryText> entries;
  std::vector<ConstantText> constants;  // ascending by name
  std::string external;                 // the name of a weights file outside, or empty
  std::vector<std::string> parameters;  // JSON
  std::vector<std::string> states;      // JSON
  std::vector<std::string> targets;     // JSON
  std::vector<std::string> target_names;
  std::map<std::string, std::string> members;  // plans/, lib/: name -> bytes
  std::string producer = R"({"hardtack":"0.1.0","torch":"2.13.0"})";
  std::string signature = "null";
  int64_t format = 1;
  std::vector<std::string> user_kernels;  // JSON; from format 3 on

  void plan(PlanText text);
  /// Adds a symbol to the manifest's entry `index` as the plan declares it.
  std::string manifest() const;
  std::string build() const;
  /// Builds with this manifest instead.
  std::string build_with(const std::string& manifest) const;

 private:
  std::vector<std::pair<std::string, std::string>> ordered_members() const;
};

/// A weights member with these tensors, in name order.
std::string write_safetensors(const std::vector<ConstantText>& tensors);
std::string state_json(const std::string& dtype, const std::string& init, const std::string& name,
                       const std::vector<int64_t>& shape);

/// The bytes of the test kernels' library.
const std::string& kernel_library();
/// `text` with the first `from` replaced; fails the test when it is not there.
std::string replaced(const std::string& text, const std::string& from, const std::string& to);

/// A file with these bytes that goes away with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes);
  ~TemporaryFile();
  const std::string& path() const { return path_; }
  void write(const std::string& bytes) const;

 private:
  std::string path_;
};

}  // namespace hardtack::testing
