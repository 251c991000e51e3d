#include "conform.h"

#include <cstring>

namespace hardtack::py_binding {
namespace {

// The dimension that is number `i` from the innermost one in memory.
int32_t from_inside(int32_t ndim, bool channels_last, int32_t i) {
  if (!channels_last) return ndim - 1 - i;
  if (i == 0) return 1;
  return i == ndim - 1 ? 0 : ndim - i;
}

int64_t stride_of(const ht_tensor& tensor, int32_t d) {
  if (tensor.strides != nullptr) return tensor.strides[d];
  int64_t stride = 1;
  for (int32_t inner = d + 1; inner < tensor.ndim; ++inner) stride *= tensor.shape[inner];
  return stride;
}

// Copies dimension number `i` from inside and all within it; `to` moves on densely.
char* copy_dense(char* to, const char* from, const ht_tensor& tensor, bool channels_last, int32_t i, size_t itemsize) {
  if (i < 0) {
    std::memcpy(to, from, itemsize);
    return to + itemsize;
  }
  const int32_t d = from_inside(tensor.ndim, channels_last, i);
  const auto step = stride_of(tensor, d) * static_cast<int64_t>(itemsize);
  for (int64_t k = 0; k < tensor.shape[d]; ++k) {
    to = copy_dense(to, from + k * step, tensor, channels_last, i - 1, itemsize);
  }
  return to;
}

}  // namespace

bool is_channels_last(const ht_tensor_info& declared) {
  const auto one = [&](int32_t d) { return declared.strides[d].lo == 1 && declared.strides[d].hi == 1; };
  return declared.ndim >= 3 && one(1) && !one(declared.ndim - 1);
}

bool conforms(const ht_tensor& tensor, const ht_tensor_info& declared) {
  const bool comparable = tensor.ndim == declared.ndim && tensor.data != nullptr &&
                          tensor.dtype.code == declared.dtype.code && tensor.dtype.bits == declared.dtype.bits;
  if (!comparable) return true;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) return true;
  }
  const bool channels_last = is_channels_last(declared);
  int64_t step = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    const int32_t d = from_inside(tensor.ndim, channels_last, i);
    if (tensor.shape[d] != 1 && stride_of(tensor, d) != step) return false;
    step *= tensor.shape[d];
  }
  return true;
}

void conform(ht_tensor* tensor, const ht_tensor_info& declared, Copy* copy) {
  const size_t itemsize = tensor->dtype.bits / 8U;
  const bool channels_last = is_channels_last(declared);
  size_t numel = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) numel *= static_cast<size_t>(tensor->shape[d]);
  copy->bytes.resize(numel * itemsize);
  const char* from = static_cast<const char*>(tensor->data) + tensor->byte_offset;
  copy_dense(copy->bytes.data(), from, *tensor, channels_last, tensor->ndim - 1, itemsize);
  copy->strides.resize(static_cast<size_t>(tensor->ndim));
  int64_t step = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    const int32_t d = from_inside(tensor->ndim, channels_last, i);
    copy->strides[static_cast<size_t>(d)] = step;
    step *= tensor->shape[d];
  }
  tensor->data = copy->bytes.data();
  tensor->byte_offset = 0;
  tensor->strides = copy->strides.data();
}

}  // namespace hardtack::py_binding
