// What a bundle's entry point takes and gives, as Triton's configuration talks about it.
#ifndef HARDTACK_TRITON_CONTRACT_H
#define HARDTACK_TRITON_CONTRACT_H

#include <cstdint>
#include <hardtack/hardtack.hpp>
#include <string>
#include <vector>

#include "fault.h"

namespace hardtack::triton {

struct Dim {
  std::int64_t lo, hi;
  std::string text;

  bool fixed() const { return lo == hi; }
};

/// An input or output.
struct Port {
  std::string name;
  ht_dtype dtype;
  TRITONSERVER_DataType type;
  std::size_t itemsize;
  std::vector<Dim> dims;
  /// (N, C, *S) in the bundle lies in memory as (N, *S, C); Triton's tensors are row-major.
  bool channels_last = false;

  /// "f32[batch, 16]"
  std::string text() const;
};

struct Contract {
  std::string entry;
  std::vector<Port> inputs, outputs;
  bool has_states = false;
  /// Why requests cannot be joined along the first dimension; "": they can, for sizes from batch.lo to batch.hi.
  std::string not_batchable;
  Dim batch{0, 0, ""};

  bool batchable() const { return not_batchable.empty(); }
};

/// `entry` "": the only one of the bundle.
Outcome read_contract(const Model& model, const std::string& entry, Contract* contract);

/// "FP32" and so on, as configurations ("TYPE_FP32") and clients write it.
const char* type_name(TRITONSERVER_DataType type);

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_CONTRACT_H
