// Running a functor over an index range with the threads that the runtime lends, without allocation or state.
#ifndef HARDTACK_TEMPLATES_PARALLEL_H
#define HARDTACK_TEMPLATES_PARALLEL_H

#include <hardtack/kernel_abi.h>

#include "simd.h"

namespace ht {

// A half-open range of rows, panels, channels.
struct Range {
  int64_t begin, end;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Part i of n, all parts as equal as whole numbers allow.
HT_INLINE Range part_of(int64_t total, int64_t i, int64_t n) { return {total * i / n, total * (i + 1) / n}; }

HT_INLINE char* worker_workspace(const HtKernelArgs* args, int32_t worker) {
  return static_cast<char*>(args->worker_workspace) + worker * args->worker_stride;
}

// body(index, worker) for every index in [0, count). One task, or one worker, runs on the calling thread.
template <class Body>
HT_INLINE void parallel_for(const HtKernelArgs* args, int64_t count, const Body& body) {
  if (count == 1 || args->parallel->nworkers == 1) {
    for (int64_t i = 0; i < count; i++) body(i, 0);
  } else if (count > 1) {
    const auto task = [](void* closure, int64_t index, int32_t worker) {
      (*static_cast<const Body*>(closure))(index, worker);
    };
    args->parallel->run(args->parallel->pool, count, task, const_cast<Body*>(&body));
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_PARALLEL_H
