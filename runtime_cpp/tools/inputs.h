// The inputs of a run: from .npy files, or made up from sizes.
#pragma once

#include <deque>
#include <hardtack/hardtack.hpp>
#include <map>
#include <string>
#include <vector>

#include "args.h"
#include "npy.h"

namespace hardtack::tools {

/// A loaded model, the entry that --entry names and a session with --threads.
struct Loaded {
  Model model;
  Session session;
  size_t entry = 0;
  double load_seconds = 0;
};

/// False after printing why, with the exit status in `*exit_status`.
bool load(const Args& args, Loaded* loaded, int* exit_status);

/// Buffers in the layout that the contract asks for.
class Inputs {
 public:
  /// Reads --input files. Inputs without a file are filled with zeros at the sizes that --size and the files give, if
  /// `make_up`; otherwise they are an error.
  bool build(const Args& args, const Loaded& loaded, bool make_up, std::string* problem);
  const std::vector<ht_tensor>& tensors() const { return tensors_; }
  const std::map<std::string, int64_t>& sizes() const { return sizes_; }

 private:
  struct Buffer {
    std::vector<char> bytes;
    std::vector<int64_t> shape, strides;
  };
  bool read_files(const Args& args, const Loaded& loaded, std::string* problem);
  bool read_sizes(const Args& args, const Loaded& loaded, std::string* problem);
  bool add(const ht_tensor_info& info, const Array* array, std::string* problem);

  std::map<std::string, Array> files_;
  std::map<std::string, int64_t> sizes_;
  std::deque<Buffer> buffers_;
  std::vector<ht_tensor> tensors_;
};

}  // namespace hardtack::tools
