#include "contract.h"

#include <cstdio>
#include <cstring>

#include "checked.h"

namespace hardtack::rt {
namespace {

std::string where(const Port& port) {
  return std::string(port.kind) + " \"" + port.declared->name + "\" (" + std::to_string(port.index) + " of entry \"" +
         port.entry + "\")";
}

std::string dtype_text(ht_dtype dtype) {
  const char* name = ht_dtype_name(dtype);
  if (name != nullptr) return name;
  char text[64];
  std::snprintf(text, sizeof text, "DLPack code %u, %u bits, %u lanes", unsigned{dtype.code}, unsigned{dtype.bits},
                unsigned{dtype.lanes});
  return text;
}

// "3", or "6 (2*s0)" when an expression gave the number.
std::string expected_text(int64_t value, const ManifestDim& dim) {
  const std::string number = std::to_string(value);
  return dim.fixed ? number : number + " (" + dim.text + ")";
}

Status bad_size(const Port& port, int32_t d, int64_t given, const std::string& expected) {
  return error(HT_CONTRACT, "%s: dimension %d is %lld, expected %s", where(port).c_str(), d,
               static_cast<long long>(given), expected.c_str());
}

bool has_elements(const int64_t* shape, uint32_t ndim) {
  for (uint32_t d = 0; d < ndim; ++d) {
    if (shape[d] == 0) return false;
  }
  return true;
}

Status check_strides(const Port& port, const ht_tensor& tensor, const int64_t* shape, const int64_t* strides) {
  int64_t contiguous = 1;
  for (int32_t d = tensor.ndim - 1; d >= 0; --d) {
    const int64_t given = tensor.strides == nullptr ? contiguous : tensor.strides[d];
    if (shape[d] != 1 && given != strides[d]) {
      const std::string expected = expected_text(strides[d], port.declared->strides[static_cast<size_t>(d)]);
      return error(HT_CONTRACT, "%s: stride %d is %lld, expected %s", where(port).c_str(), d,
                   static_cast<long long>(given), expected.c_str());
    }
    if (tensor.strides == nullptr && !checked_mul(contiguous, shape[d], &contiguous)) {
      return bad_size(port, d, shape[d], "a tensor below 2^63 elements");
    }
  }
  return Status();
}

Status check_pointer(const Port& port, const ht_tensor& tensor) {
  if (tensor.data == nullptr) return error(HT_CONTRACT, "%s: data is null", where(port).c_str());
  const uint64_t base = reinterpret_cast<uintptr_t>(tensor.data);
  uint64_t address = 0;
  if (!checked_add(base, tensor.byte_offset, &address)) {
    return error(HT_CONTRACT, "%s: byte_offset %llu leaves the address space", where(port).c_str(),
                 static_cast<unsigned long long>(tensor.byte_offset));
  }
  const uint64_t unit = static_cast<uint64_t>(itemsize(port.value->dtype));  // of complex numbers a part's
  if (address % unit == 0) return Status();
  return error(HT_CONTRACT, "%s: data is at address 0x%llx, expected a multiple of %llu", where(port).c_str(),
               static_cast<unsigned long long>(address), static_cast<unsigned long long>(unit));
}

Status bad_device(const Port& port, const ht_device& given, const ht_device& expected) {
  const int type = static_cast<int>(given.device_type), expected_type = static_cast<int>(expected.device_type);
  if (expected_type == 1) {
    return error(HT_CONTRACT, "%s: device type is %d, expected %d", where(port).c_str(), type, expected_type);
  }
  return error(HT_CONTRACT, "%s: it lies on device type %d, number %d; expected the host or type %d, number %d",
               where(port).c_str(), type, static_cast<int>(given.device_id), expected_type,
               static_cast<int>(expected.device_id));
}

}  // namespace

Status check_form(const Port& port, const ht_tensor& tensor, const Device& device) {
  const DType expected = port_dtype(*port.value);
  const uint32_t ndim = port_ndim(*port.value);
  DType dtype;
  if (!dtype_from_dl(tensor.dtype, &dtype) || dtype != expected) {
    return error(HT_CONTRACT, "%s: dtype is %s, expected %s", where(port).c_str(), dtype_text(tensor.dtype).c_str(),
                 dtype_name(expected));
  }
  if (tensor.ndim < 0 || static_cast<uint32_t>(tensor.ndim) != ndim) {
    return error(HT_CONTRACT, "%s: rank is %d, expected %u", where(port).c_str(), tensor.ndim, ndim);
  }
  if (!device.reaches(tensor.device) && !(device.stages_host() && is_host(tensor.device))) {
    return bad_device(port, tensor.device, device.dl_device());
  }
  if (ndim > 0 && tensor.shape == nullptr) return error(HT_CONTRACT, "%s: shape is null", where(port).c_str());
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] < 0) return bad_size(port, d, tensor.shape[d], "0 or more");
  }
  return Status();
}

Status check_sizes(const Port& port, const ht_tensor& tensor, const int64_t* shape, const int64_t* strides) {
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == shape[d]) continue;
    return bad_size(port, d, tensor.shape[d], expected_text(shape[d], port.declared->shape[static_cast<size_t>(d)]));
  }
  if (!has_elements(shape, port_ndim(*port.value))) return Status();
  HT_RETURN_IF_ERROR(check_strides(port, tensor, shape, strides));
  return check_pointer(port, tensor);
}

Status check_unsized(const Port& port, bool is_own) {
  if (is_own) return Status();
  return error(HT_CONTRACT,
               "%s: its size is known only during the run; leave data null, and the session gives a buffer",
               where(port).c_str());
}

Status read_sym(const PlanSym& sym, const Port& port, const ht_tensor& tensor, Queue* queue, int64_t* value) {
  if (sym.dim >= 0) {
    *value = tensor.shape[sym.dim];
    if (*value >= sym.lo && *value <= sym.hi) return Status();
    return bad_size(port, sym.dim, *value, range_text(sym) + " (" + sym.name + ")");
  }
  HT_RETURN_IF_ERROR(check_pointer(port, tensor));
  if (is_host(tensor.device))
    std::memcpy(value, tensor_data(tensor), sizeof *value);
  else
    HT_RETURN_IF_ERROR(queue->read(value, tensor_data(tensor), sizeof *value));
  if (*value >= sym.lo && *value <= sym.hi) return Status();
  return error(HT_CONTRACT, "%s: value is %lld, expected %s (%s)", where(port).c_str(), static_cast<long long>(*value),
               range_text(sym).c_str(), sym.name);
}

Status check_guards(const Program& program, const std::vector<int64_t>& syms, const int64_t* exprs) {
  static constexpr const char* kRelations[] = {"equal to", "other than", "less than", "at most"};
  const ExprTable& table = program.plan.exprs;
  for (const Guard& guard : program.plan.guards) {
    if (!table.is_known(guard.a, syms.size()) || !table.is_known(guard.b, syms.size())) continue;
    const int64_t a = exprs[guard.a], b = exprs[guard.b];
    bool holds = false;
    switch (guard.relation) {
      case Relation::eq: holds = a == b; break;
      case Relation::ne: holds = a != b; break;
      case Relation::lt: holds = a < b; break;
      case Relation::le: holds = a <= b; break;
    }
    if (holds) continue;
    return error(fault_code(program.plan, syms),
                 "entry \"%s\" requires %s; with %s the left side is %lld, expected %s %lld", program.plan.entry,
                 guard.text, sizes_text(program.plan, syms).c_str(), static_cast<long long>(a),
                 kRelations[static_cast<size_t>(guard.relation)], static_cast<long long>(b));
  }
  return Status();
}

ht_code fault_code(const Plan& plan, const std::vector<int64_t>& syms) {
  return syms.size() > plan.num_input_syms ? HT_KERNEL : HT_CONTRACT;
}

std::string range_text(const PlanSym& sym) {
  if (sym.hi == kNoUpperBound) return "at least " + std::to_string(sym.lo);
  return std::to_string(sym.lo) + " to " + std::to_string(sym.hi);
}

std::string sizes_text(const Plan& plan, const std::vector<int64_t>& syms) {
  std::string text;
  for (size_t i = 0; i < syms.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::string(plan.syms[i].name) + " = " + std::to_string(syms[i]);
  }
  return text.empty() ? "no symbols" : text;
}

}  // namespace hardtack::rt
