#include "conform.h"

#include <cstring>

namespace hardtack::py_binding {
namespace {

// Dimensions from outermost to innermost in memory, as the contract wants them: row-major, or channels-last, which is
// told by a stride of 1 in dimension 1. Exports declare nothing else.
std::vector<int32_t> declared_order(const ht_tensor_info& declared) {
  std::vector<int32_t> order;
  const auto one = [&](int32_t d) { return declared.strides[d].lo == 1 && declared.strides[d].hi == 1; };
  const bool channels_last = declared.ndim >= 3 && one(1) && !one(declared.ndim - 1);
  for (int32_t d = 0; d < declared.ndim; ++d) {
    if (!(channels_last && d == 1)) order.push_back(d);
  }
  if (channels_last) order.push_back(1);
  return order;
}

bool is_dense(const ht_tensor& tensor, const int64_t* strides, const std::vector<int32_t>& order) {
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int32_t d = order[i];
    if (tensor.shape[d] != 1 && strides[d] != step) return false;
    step *= tensor.shape[d];
  }
  return true;
}

// Copies dimension order[depth] and all inside it; `to` moves on densely.
char* copy_dense(char* to, const char* from, const ht_tensor& tensor, const int64_t* strides,
                 const std::vector<int32_t>& order, size_t depth, size_t itemsize) {
  if (depth == order.size()) {
    std::memcpy(to, from, itemsize);
    return to + itemsize;
  }
  const int32_t d = order[depth];
  const auto step = strides[d] * static_cast<int64_t>(itemsize);
  for (int64_t i = 0; i < tensor.shape[d]; ++i) {
    to = copy_dense(to, from + i * step, tensor, strides, order, depth + 1, itemsize);
  }
  return to;
}

}  // namespace

bool conform(ht_tensor* tensor, const ht_tensor_info& declared, Copy* copy) {
  const bool comparable = tensor->ndim == declared.ndim && tensor->data != nullptr && tensor->device.device_type == 1 &&
                          tensor->dtype.code == declared.dtype.code && tensor->dtype.bits == declared.dtype.bits;
  if (!comparable) return false;  // the runtime refuses it, and says why
  const size_t ndim = static_cast<size_t>(tensor->ndim);
  std::vector<int64_t> strides(ndim, 1);
  size_t numel = 1;
  for (size_t d = ndim; d-- > 0;) {
    strides[d] = tensor->strides != nullptr ? tensor->strides[d] : static_cast<int64_t>(numel);
    numel *= static_cast<size_t>(tensor->shape[d]);
  }
  const std::vector<int32_t> order = declared_order(declared);
  if (numel == 0 || is_dense(*tensor, strides.data(), order)) return false;
  const size_t itemsize = tensor->dtype.bits / 8U;
  copy->bytes.resize(numel * itemsize);
  copy_dense(copy->bytes.data(), static_cast<const char*>(tensor->data) + tensor->byte_offset, *tensor, strides.data(),
             order, 0, itemsize);
  copy->strides.resize(ndim);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    copy->strides[static_cast<size_t>(order[i])] = step;
    step *= tensor->shape[order[i]];
  }
  tensor->data = copy->bytes.data();
  tensor->byte_offset = 0;
  tensor->strides = copy->strides.data();
  return true;
}

}  // namespace hardtack::py_binding
