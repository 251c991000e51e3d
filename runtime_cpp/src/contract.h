// The contract of an entry point, checked on every run: dtype, rank, device, sizes, strides, alignment, ranges.
#pragma once

#include "device.h"
#include "manifest.h"
#include "program.h"

namespace hardtack::rt {

/// One input or output as the caller sees it.
struct Port {
  const char* kind = "input";  // or "output"
  uint32_t index = 0;
  const char* entry = "";
  const Value* value = nullptr;
  const ManifestTensor* declared = nullptr;
};

/// What does not depend on the sizes: dtype, rank, device, a shape array that is there, sizes that are not negative.
Status check_form(const Port& port, const ht_tensor& tensor, const Device& device);

/// Whether the host can follow pointers to a tensor there.
inline bool is_host(const ht_device& device) {
  const int type = static_cast<int>(device.device_type);
  return type == 1 || type == 3;
}

/// Sizes, strides, pointer and alignment against the bound contract. `shape` and `strides` have ndim entries.
Status check_sizes(const Port& port, const ht_tensor& tensor, const int64_t* shape, const int64_t* strides);

/// The address of the first element; null stays null.
inline void* tensor_data(const ht_tensor& tensor) {
  return tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
}

/// Reads a symbol from its input and checks its range. The inputs have passed check_form.
Status read_sym(const PlanSym& sym, const Port& port, const ht_tensor& tensor, Queue* queue, int64_t* value);

/// An output whose sizes the run has yet to read has to be a buffer of the session's own.
Status check_unsized(const Port& port, bool is_own);

/// What sizes that do not fit are: HT_CONTRACT, or HT_KERNEL if a run has read some of them.
ht_code fault_code(const Plan& plan, const std::vector<int64_t>& syms);

/// Of the guards that these symbols, the first ones of the plan, decide, one that does not hold is an error.
Status check_guards(const Program& program, const std::vector<int64_t>& syms, const int64_t* exprs);

/// "0 to 64", "at least 0".
std::string range_text(const PlanSym& sym);

/// "s0 = 3, s1 = 5" for messages.
std::string sizes_text(const Plan& plan, const std::vector<int64_t>& syms);

}  // namespace hardtack::rt
