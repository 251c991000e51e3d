/* The contract between Hardtack's runtime and the CPU kernels that Hardtack's code generator writes.
 *
 * A bundle's lib/<cpu-target>.so exports exactly one symbol, `hardtack_kernels`, an HtKernelTable. It imports nothing
 * beyond libm. Every kernel has the same C signature and receives one HtKernelArgs; what the arrays hold is written in
 * the plan's kernel record (docs/plan.md). This header is freestanding: it includes nothing but <stdint.h>.
 *
 * Threads: a kernel may call `parallel->run` any number of times, one after the other, never nested. Kernels keep no
 * state between calls, so one table may be used by any number of sessions at once.
 */
#ifndef HARDTACK_KERNEL_ABI_H
#define HARDTACK_KERNEL_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The versions that this runtime calls. Libraries with kernels of users are of version 2, all others of version 1. */
#define HT_KERNEL_ABI_FIRST 1u
#define HT_KERNEL_ABI_VERSION 2u

/* What a kernel returns. Anything else is treated as a broken kernel. */
enum {
  HT_KERNEL_OK = 0,
  HT_KERNEL_INDEX_OUT_OF_RANGE = 1, /* a data-dependent index (gather, embedding, ...) fell outside its dimension */
  HT_KERNEL_ASSERT = 2,             /* a run-time assertion of the model failed */
  HT_KERNEL_FAILED = 3              /* from version 2 on: a user's kernel says why in HtKernelArgs.message */
};

/* Runs task(closure, index, worker) once for every index in [0, ntasks), on up to `nworkers` threads, and returns when
 * all are done. `worker` is in [0, nworkers) and no two tasks that run at the same time see the same worker. */
typedef struct HtParallel {
  void* pool;
  void (*run)(void* pool, int64_t ntasks, void (*task)(void* closure, int64_t index, int32_t worker), void* closure);
  int32_t nworkers;
} HtParallel;

struct ht_kernel_call; /* hardtack/kernel.h */

/* A function that the host program has registered (ht_register_op). */
typedef struct HtHostKernel {
  int32_t (*fn)(const struct ht_kernel_call* call);
  void* user_data;
} HtHostKernel;

typedef struct HtKernelArgs {
  void* const* buffers;       /* one pointer per buffer parameter, in the order of the kernel record's params */
  const int64_t* ints;        /* one value per integer parameter, likewise */
  const HtParallel* parallel; /* never null; nworkers >= 1 */
  void* shared_workspace;     /* 64-byte aligned, as large as the launch's workspace.shared says; null when 0 */
  void* worker_workspace;     /* 64-byte aligned; worker w owns [w * worker_stride, (w + 1) * worker_stride) */
  int64_t worker_stride;      /* workspace.per_worker rounded up to a multiple of 64 */
  /* From version 2 on. */
  char* message; /* what a user's kernel says of its failure; ends with NUL */
  int64_t message_nbytes;
  const HtHostKernel*
      host; /* what is registered under the name in the kernel's record; null for a record without one */
} HtKernelArgs;

typedef int32_t (*HtKernelFn)(const HtKernelArgs* args);

typedef struct HtKernelEntry {
  const char* name; /* the kernel's content name, as in the plan */
  HtKernelFn fn;
} HtKernelEntry;

typedef struct HtKernelTable {
  uint32_t abi_version; /* HT_KERNEL_ABI_VERSION */
  uint32_t count;
  const HtKernelEntry* entries; /* sorted by name, ascending, bytewise */
} HtKernelTable;

#ifdef __cplusplus
}
#endif

#endif /* HARDTACK_KERNEL_ABI_H */
