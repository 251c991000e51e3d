/** @file
 * Kernels of users: the function that computes an op of the user's own, inside of a bundle (hardtack.CppKernel) or in
 * the program that loads it (hardtack.HostKernel, ht_register_op). C99 and C++17; freestanding, as kernels are.
 *
 *     int32_t clip(const ht_kernel_call* call) {
 *       const ht_tensor* x = call->arguments[0].value.tensor;
 *       ...
 *       return 0;
 *     }
 *
 * Everything in a call is the runtime's, and good until the function returns. A kernel reads its arguments, writes each
 * element of its results and of the arguments that its op writes to, and nothing else: Hardtack proves that they have
 * the dtypes and sizes that the export saw, and believes the kernel the rest. It may run on several threads at once, for
 * several sessions, and keeps no state between calls. It must not throw.
 */
#ifndef HARDTACK_KERNEL_H
#define HARDTACK_KERNEL_H

#include <hardtack/kernel_abi.h>
#include <hardtack/tensor.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this interface: of ht_kernel_call and of what it points to. Structs grow at their end. */
#define HT_CALL_ABI_VERSION 1u

/** What an argument is. */
typedef enum ht_argument_kind {
  HT_ARGUMENT_NONE = 0,   /**< an optional argument that was left out */
  HT_ARGUMENT_TENSOR = 1, /**< value.tensor */
  HT_ARGUMENT_INT = 2,    /**< value.integer: an int, or a size of the run */
  HT_ARGUMENT_FLOAT = 3,  /**< value.real */
  HT_ARGUMENT_BOOL = 4,   /**< value.integer: 0 or 1 */
  HT_ARGUMENT_TEXT = 5,   /**< value.text: UTF-8, ends with NUL */
  HT_ARGUMENT_DTYPE = 6,  /**< value.dtype */
  HT_ARGUMENT_LIST = 7    /**< value.items: `count` of them */
} ht_argument_kind;

/** One argument of the op's schema. */
typedef struct ht_argument {
  int32_t kind;  /**< an ht_argument_kind: it says which field of `value` there is */
  int32_t count; /**< of a list, how many items; else 0 */
  /** What the argument is. */
  union {
    const ht_tensor* tensor;
    int64_t integer;
    double real;
    const char* text;
    ht_dtype dtype;
    const struct ht_argument* items;
  } value;
} ht_argument;

/** A call of a kernel. Tensors are on the CPU, their byte_offset is 0, their strides are never NULL, and count elements:
 * row-major ones, but for arguments that CppKernel or HostKernel names in `strided`. Data is aligned to its dtype. */
typedef struct ht_kernel_call {
  uint32_t abi_version;  /**< HT_CALL_ABI_VERSION of who calls; fields of later versions are not there */
  int32_t num_arguments; /**< as many as the schema has */
  int32_t num_results;
  /** One for each argument of the op's schema, in its order, those with defaults, too. An argument that the op writes to
   * is memory of its own that has the content: it is changed in place. */
  const ht_argument* arguments;
  const ht_tensor* results; /**< one for each result, in order; their content is undefined before */
  void* workspace;          /**< aligned to 64 bytes; NULL where the kernel asked for none */
  int64_t workspace_nbytes;
  void* worker_workspace; /**< likewise; worker w owns [w * worker_nbytes, (w + 1) * worker_nbytes) */
  int64_t worker_nbytes;  /**< a multiple of 64 */
  /** The session's threads: parallel->run(parallel->pool, n, task, closure), any number of times, never nested. */
  const HtParallel* parallel;
  void* stream;           /**< NULL on the CPU */
  void* user_data;        /**< what ht_register_op was given; NULL inside of a bundle */
  char* message;          /**< where a kernel that fails says why: ht_fail */
  int64_t message_nbytes; /**< of `message`, at least 1 */
} ht_kernel_call;

/** Computes an op. 0: done. Anything else: the run fails with HT_KERNEL and what ht_fail was given, or the number. */
typedef int32_t (*ht_kernel)(const ht_kernel_call* call);

/** Says why a kernel fails, as much of it as there is room for, and gives what it returns: return ht_fail(call, "..."). */
static inline int32_t ht_fail(const ht_kernel_call* call, const char* why) {
  int64_t n = 0;
  for (; n + 1 < call->message_nbytes && why[n] != 0; ++n) call->message[n] = why[n];
  call->message[n] = 0;
  return 1;
}

/** How many elements a tensor has. */
static inline int64_t ht_numel(const ht_tensor* tensor) {
  int64_t numel = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) numel *= tensor->shape[d];
  return numel;
}

#ifdef __cplusplus
}
#endif

#endif /* HARDTACK_KERNEL_H */
