// Calls of users' kernels (hardtack/kernel.h).
#pragma once

#include <hardtack/kernel.h>

#include "loops.h"

namespace ht {

inline ht_tensor tensor(const void* data, ht_dtype dtype, int32_t ndim, const int64_t* shape, const int64_t* strides) {
  return {const_cast<void*>(data), {1, 0}, ndim, dtype, const_cast<int64_t*>(shape), const_cast<int64_t*>(strides), 0};
}

inline ht_argument argument(int32_t kind, int32_t count = 0) {
  ht_argument made = {};
  made.kind = kind;
  made.count = count;
  return made;
}

inline ht_argument none() { return argument(HT_ARGUMENT_NONE); }

inline ht_argument tensor_argument(const ht_tensor* value) {
  ht_argument made = argument(HT_ARGUMENT_TENSOR);
  made.value.tensor = value;
  return made;
}

inline ht_argument integer(int64_t value) {
  ht_argument made = argument(HT_ARGUMENT_INT);
  made.value.integer = value;
  return made;
}

inline ht_argument boolean(bool value) {
  ht_argument made = argument(HT_ARGUMENT_BOOL);
  made.value.integer = value ? 1 : 0;
  return made;
}

inline ht_argument real(double value) {
  ht_argument made = argument(HT_ARGUMENT_FLOAT);
  made.value.real = value;
  return made;
}

inline ht_argument text(const char* value) {
  ht_argument made = argument(HT_ARGUMENT_TEXT);
  made.value.text = value;
  return made;
}

inline ht_argument element(ht_dtype value) {
  ht_argument made = argument(HT_ARGUMENT_DTYPE);
  made.value.dtype = value;
  return made;
}

inline ht_argument list(const ht_argument* items, int32_t count) {
  ht_argument made = argument(HT_ARGUMENT_LIST, count);
  made.value.items = items;
  return made;
}

// What an op that writes to an argument finds there.
inline void copy_bytes(void* to, const void* from, int64_t nbytes) {
  if (nbytes > 0) __builtin_memcpy(to, from, static_cast<size_t>(nbytes));
}

// The message of a kernel that fails without one.
inline void say_status(const ht_kernel_call& call, int32_t status) {
  char digits[12];
  int n = 0;
  int64_t rest = status < 0 ? -static_cast<int64_t>(status) : status;
  for (; rest > 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
  if (status < 0) digits[n++] = '-';
  ht_fail(&call, "it returned ");
  int64_t at = 0;
  while (call.message[at] != 0) ++at;
  while (n > 0 && at + 1 < call.message_nbytes) call.message[at++] = digits[--n];
  call.message[at] = 0;
}

// Calls the kernel with the session's threads and memory; `call` has the arguments and the results.
inline int32_t custom(const HtKernelArgs* args, ht_kernel kernel, ht_kernel_call call, int64_t workspace_nbytes) {
  call.abi_version = HT_CALL_ABI_VERSION;
  call.workspace = args->shared_workspace;
  call.workspace_nbytes = workspace_nbytes;
  call.worker_workspace = args->worker_workspace;
  call.worker_nbytes = args->worker_stride;
  call.parallel = args->parallel;
  call.message = args->message;
  call.message_nbytes = args->message_nbytes;
  call.message[0] = 0;
  const int32_t status = kernel(&call);
  if (status == 0) return HT_KERNEL_OK;
  if (call.message[0] == 0) say_status(call, status);
  return HT_KERNEL_FAILED;
}

}  // namespace ht
