// What generated loop kernels share: splitting work among workers, loops over lanes with a remainder, loads and stores
// of any access pattern, and checks of data-dependent indices. Includes simd.h and vmath.h.
#ifndef HARDTACK_TEMPLATES_LOOPS_H
#define HARDTACK_TEMPLATES_LOOPS_H

#include "float8.h"
#include "parallel.h"
#include "simd.h"
#include "vmath.h"

#define HT_LAMBDA __attribute__((always_inline))

namespace ht {

// How many lanes of a vector are points of the loop.
struct Full {
  static constexpr int n = W;
};
struct Part {
  int n;
};

constexpr int64_t kTaskWork = 16384;  // element operations that are worth a task of their own

template <class F>
struct RangeTasks {
  F& body;
  int64_t total, size;
  static void run(void* closure, int64_t index, int32_t worker) {
    const RangeTasks& self = *static_cast<const RangeTasks*>(closure);
    const int64_t begin = index * self.size, end = begin + self.size;
    self.body(begin, end < self.total ? end : self.total, worker);
  }
};

// body(begin, end, worker) over [0, total), in tasks of at least kTaskWork operations at `work` operations a point.
template <class F>
HT_INLINE void ranges(const HtKernelArgs* args, int64_t total, int64_t work, F body) {
  if (total <= 0) return;
  const int64_t workers = args->parallel->nworkers;
  const int64_t least = kTaskWork / (work < 1 ? 1 : work) + 1;
  if (workers == 1 || total <= least) return body(0, total, 0);
  int64_t size = (total + workers * 4 - 1) / (workers * 4);
  if (size < least) size = least;
  RangeTasks<F> tasks{body, total, size};
  args->parallel->run(args->parallel->pool, (total + size - 1) / size, &RangeTasks<F>::run, &tasks);
}

// body(i, Full) for each whole vector of [begin, end), body(i, Part) for the rest.
template <class F>
HT_INLINE void lanes(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + W <= end; i += W) body(i, Full{});
  if (i < end) body(i, Part{static_cast<int>(end - i)});
}

// The same with four accumulators in turn, so that consecutive vectors do not wait for each other.
template <class A, class F>
HT_INLINE void lanes4(int64_t begin, int64_t end, A (&acc)[4], F body) {
  int64_t i = begin;
  for (; i + 4 * W <= end; i += 4 * W) {
    body(i, Full{}, acc[0]);
    body(i + W, Full{}, acc[1]);
    body(i + 2 * W, Full{}, acc[2]);
    body(i + 3 * W, Full{}, acc[3]);
  }
  for (; i + W <= end; i += W) body(i, Full{}, acc[0]);
  if (i < end) body(i, Part{static_cast<int>(end - i)}, acc[1]);
}

// Sums of many blocks, joined like carries: level k holds up to kRadix sums of kRadix^k blocks each, so that every number
// is rounded a few dozen times, however many there are. join(a, b) adds b to a.
constexpr int64_t kRadix = 16;
template <class A, class J>
struct Cascade {
  static constexpr int kLevels = 7;
  J join;
  int64_t blocks = 0;
  A level[kLevels];  // set when first used

  HT_MEMBER void push(const A& block) {
    A part = block;
    int64_t n = ++blocks;
    int k = 0;
    for (; n % kRadix == 0 && k + 1 < kLevels; n /= kRadix, k++) {
      join(level[k], part);
      part = level[k];
    }
    if (k + 1 < kLevels ? n % kRadix == 1 : n == 1) level[k] = part;
    else join(level[k], part);
  }
  // Adds everything to `last`, which is the block that has not been pushed.
  HT_MEMBER void finish(A& last) const {
    int64_t n = blocks;
    for (int k = 0; n != 0; n /= kRadix, k++) {
      if (k + 1 == kLevels) return join(last, level[k]);
      if (n % kRadix != 0) join(last, level[k]);
    }
  }
};
template <class A, class J>
HT_INLINE Cascade<A, J> cascade_of(const A&, J join) {
  return Cascade<A, J>{join, 0, {}};
}

HT_INLINE bool all_lanes(Full) { return true; }
HT_INLINE bool all_lanes(Part) { return false; }
HT_INLINE vmask active(Full) { return bcast<int32_t>(-1); }
HT_INLINE vmask active(Part c) { return first_n(c.n); }

// Loads. A bool tensor (Bool) is bytes in memory and a vmask in registers.
struct Bool {
  uint8_t byte;
};
template <class T>
struct Lanes {
  using type = vec<reg<T>>;
  using element = T;
};
template <>
struct Lanes<Bool> {
  using type = vmask;
  using element = uint8_t;
};
template <class T>
using lanes_of = typename Lanes<T>::type;

template <class T, class V>
HT_INLINE lanes_of<T> wrap(V v) {
  if constexpr (same<T, Bool>) return mask_of(v);
  else return v;
}
template <class T, class V>
HT_INLINE auto unwrap(V v) {
  if constexpr (same<T, Bool>) return cast<uint8_t>(v & 1);
  else return v;
}
template <class T>
HT_INLINE const typename Lanes<T>::element* raw(const T* p) {
  return reinterpret_cast<const typename Lanes<T>::element*>(p);
}
template <class T>
HT_INLINE typename Lanes<T>::element* raw_out(T* p) {
  return reinterpret_cast<typename Lanes<T>::element*>(p);
}

template <class T>
HT_INLINE lanes_of<T> ld(const T* p, Full) {
  return wrap<T>(load(raw(p)));
}
template <class T>
HT_INLINE lanes_of<T> ld(const T* p, Part c) {
  return wrap<T>(load_n(raw(p), c.n));
}
template <class T>
HT_INLINE void st(T* p, lanes_of<T> v, Full) {
  store(raw_out(p), unwrap<T>(v));
}
template <class T>
HT_INLINE void st(T* p, lanes_of<T> v, Part c) {
  store_n(raw_out(p), unwrap<T>(v), c.n);
}

// The same of values that T has already: they are not rounded.
HT_INLINE void st_exact(bf16* p, vec<float> v, Full) { store_exact(p, v, W); }
HT_INLINE void st_exact(bf16* p, vec<float> v, Part c) { store_exact(p, v, c.n); }

// One element for all lanes, and back.
template <class T>
HT_INLINE lanes_of<T> ld_one(const T* p) {
  if constexpr (same<T, Bool>) return bcast<int32_t>(-static_cast<int32_t>(p->byte != 0));
  else return bcast<reg<T>>(load1(p));
}
template <class T>
HT_INLINE void st_one(T* p, lanes_of<T> v) {
  if constexpr (same<T, Bool>) p->byte = static_cast<uint8_t>(v[0] & 1);
  else store1(p, v[0]);
}

template <class T, class C>
HT_INLINE lanes_of<T> ld_strided(const T* p, int64_t stride, C c) {
  return wrap<T>(load_strided(raw(p), stride, c.n));
}
template <class T, class C>
HT_INLINE void st_strided(T* p, int64_t stride, lanes_of<T> v, C c) {
  store_strided(raw_out(p), stride, unwrap<T>(v), c.n);
}
template <class T, class C>
HT_INLINE lanes_of<T> ld_at(const T* p, vec<int64_t> at, C c) {
  return wrap<T>(gather(raw(p), at, c.n));
}

// Loads that are not made where the mask is false; those lanes get `other`.
template <class T, class C>
HT_INLINE lanes_of<T> ld_if(const T* p, vec<int64_t> at, vmask m, lanes_of<T> other, C c) {
  lanes_of<T> v = other;
  for (int i = 0; i < c.n; i++) {
    if (m[i]) v[i] = ld_one(p + at[i])[0];
  }
  return v;
}

// Updates lane by lane, in order: indices may repeat.
template <class T, class C, class F>
HT_INLINE void update_at(T* p, vec<int64_t> at, lanes_of<T> v, C c, F op) {
  for (int i = 0; i < c.n; i++) {
    lanes_of<T> one = v;
    for (int j = 0; j < W; j++) one[j] = v[i];
    st_one(p + at[i], op(ld_one(p + at[i]), one));
  }
}
template <class T, class C>
HT_INLINE void st_at(T* p, vec<int64_t> at, lanes_of<T> v, C c) {
  for (int i = 0; i < c.n; i++) {
    if constexpr (same<T, Bool>) p[at[i]].byte = static_cast<uint8_t>(v[i] & 1);
    else store1(p + at[i], v[i]);
  }
}

HT_INLINE vec<int64_t> ramp(int64_t first) { return bcast<int64_t>(first) + iota<int64_t>(); }

// A size as a divisor: where it is 0 there is no element, and any quotient will do.
HT_INLINE int64_t divisor(int64_t size) { return size == 0 ? 1 : size; }
HT_INLINE vec<int64_t> divisor(vec<int64_t> size) { return size == 0 ? bcast<int64_t>(1) : size; }
HT_INLINE int64_t floordiv(int64_t a, int64_t b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }
HT_INLINE int64_t floormod(int64_t a, int64_t b) { return a - floordiv(a, b) * b; }
HT_INLINE vec<int64_t> least(vec<int64_t> a, vec<int64_t> b) { return a < b ? a : b; }
HT_INLINE vec<int64_t> most(vec<int64_t> a, vec<int64_t> b) { return a > b ? a : b; }
HT_INLINE vec<int64_t> floordiv(vec<int64_t> a, vec<int64_t> b) {
  for (int i = 0; i < W; i++) a[i] = floordiv(a[i], b[i]);
  return a;
}
HT_INLINE vec<int64_t> floormod(vec<int64_t> a, vec<int64_t> b) { return a - floordiv(a, b) * b; }

// The status that any worker may set; the kernel returns it.
struct Status {
  int32_t code = HT_KERNEL_OK;
};
HT_INLINE void fail(Status& status, int32_t code) { __atomic_store_n(&status.code, code, __ATOMIC_RELAXED); }

// An index into [0, size), counted from the end when negative; outside of it the kernel fails and 0 is used.
HT_INLINE int64_t check(int64_t i, int64_t size, Status& status) {
  const int64_t at = i < 0 ? i + size : i;
  if (at >= 0 && at < size) return at;
  fail(status, HT_KERNEL_INDEX_OUT_OF_RANGE);
  return 0;
}
template <class C>
HT_INLINE vec<int64_t> check(vec<int64_t> i, int64_t size, Status& status, C c) {
  const vec<int64_t> zero = {}, sizes = bcast<int64_t>(size);
  const vec<int64_t> at = i + ((i < zero) & sizes);
  const vec<int64_t> inside = (at >= zero) & (at < sizes);
  if (__builtin_expect(hany(detail::to_vmask(~inside) & active(c)), 0)) fail(status, HT_KERNEL_INDEX_OUT_OF_RANGE);
  return at & inside;
}

// Integer division by zero is the model's error, not a trap. Lanes outside the loop may hold anything.
template <class V, class C>
HT_INLINE V nonzero(V b, Status& status, C c) {
  for (int k = 0; k < W; k++) {
    if (b[k] == 0) {
      if (k < c.n) fail(status, HT_KERNEL_ASSERT);
      b[k] = 1;
    }
  }
  return b;
}
// Truncating quotient without the overflow of the lowest value by -1.
template <class V>
HT_INLINE V trunc_quotient(V a, V b) {
  constexpr bool is_signed = static_cast<lane<V>>(-1) < lane<V>{0};
  for (int k = 0; k < W; k++) {
    const bool negates = is_signed && b[k] == static_cast<lane<V>>(-1);
    a[k] = negates ? static_cast<lane<V>>(0 - a[k]) : static_cast<lane<V>>(a[k] / b[k]);
  }
  return a;
}
template <class V>
HT_INLINE V floor_quotient(V a, V b) {
  const V q = trunc_quotient(a, b);
  V out = q;
  for (int k = 0; k < W; k++) out[k] = static_cast<lane<V>>(q[k] - ((a[k] != q[k] * b[k]) & ((a[k] < 0) != (b[k] < 0))));
  return out;
}
template <class V>
HT_INLINE V power(V a, V b) {
  V out = a;
  for (int k = 0; k < W; k++) {
    lane<V> base = a[k], result = 1;
    for (auto e = b[k]; e > 0; e >>= 1, base = static_cast<lane<V>>(base * base)) {
      if (e & 1) result = static_cast<lane<V>>(result * base);
    }
    out[k] = b[k] < 0 ? static_cast<lane<V>>(a[k] == 1 ? 1 : a[k] == static_cast<lane<V>>(-1) ? ((b[k] & 1) ? -1 : 1) : 0) : result;
  }
  return out;
}

// a / b to the last bit where b is the same in all lanes: one division for the whole loop, then a product and a step by
// what is left of a, which is the quotient rounded once if the reciprocal is and nothing underflows on the way
// (P. Markstein, Computation of Elementary Functions on the IBM RISC System/6000 Processor, 1990). Other numbers are
// divided as they are, and all where fma rounds twice, or where dividing is the faster: of 256 bits, it takes half the time
// of these eleven instructions on Zen 3.
template <class V>
HT_INLINE V div_uniform(V a, V b) {
#if defined(HT_AVX512) || defined(HT_NEON)
  using T = lane<V>;
  constexpr T kMostDivisor = static_cast<T>(0x1p24);
  constexpr T kMost = sizeof(T) == 4 ? static_cast<T>(0x1p100) : static_cast<T>(0x1p900);
  const T d = b[0] < 0 ? -b[0] : b[0];
  if (!(d <= kMostDivisor && d >= 1 / kMostDivisor)) return a / b;
  const V size = vabs(a);
  const vmask usual = ge(size, bcast<T>(1 / kMost)) & le(size, bcast<T>(kMost));  // no zeros: the step loses their sign
  if (__builtin_expect(!hall(usual), 0)) return a / b;
  const V r = bcast<T>(1 / b[0]);
  const V q = a * r;
  return fma(fma(-q, b, a), r, q);
#else
  return a / b;
#endif
}

// argmax and argmin: the better value wins, NaN is best of all, the smaller index among equals. The index -1 is of no
// element yet, the largest of an element that any other goes before.
template <class V>
struct Best {
  V value;
  vec<int64_t> index;
};
HT_INLINE bool nowhere(int64_t index) { return static_cast<int64_t>(static_cast<uint64_t>(index) + 1) <= 0; }
template <class T>
HT_INLINE bool beats(T a, T b, bool largest) {
  if (a != a) return b == b;
  return b == b && (largest ? a > b : a < b);
}
template <class V>
HT_INLINE void take_best(Best<V>& best, V value, vec<int64_t> index, vmask on, bool largest) {
  for (int k = 0; k < W; k++) {
    if (on[k] && (nowhere(best.index[k]) || beats(value[k], best.value[k], largest))) {
      best.value[k] = value[k];
      best.index[k] = index[k];
    }
  }
}
template <class V>
HT_INLINE int64_t best_of_lanes(const Best<V>& best, bool largest) {
  int at = 0;
  for (int k = 1; k < W; k++) {
    if (nowhere(best.index[k])) continue;
    if (nowhere(best.index[at]) || beats(best.value[k], best.value[at], largest) ||
        (!beats(best.value[at], best.value[k], largest) && best.index[k] < best.index[at])) {
      at = k;
    }
  }
  return nowhere(best.index[at]) ? 0 : best.index[at];
}
template <class V>
HT_INLINE void merge_best(Best<V>& a, const Best<V>& b, bool largest) {
  for (int k = 0; k < W; k++) {
    if (nowhere(b.index[k])) continue;
    if (nowhere(a.index[k]) || beats(b.value[k], a.value[k], largest) ||
        (!beats(a.value[k], b.value[k], largest) && b.index[k] < a.index[k])) {
      a.value[k] = b.value[k];
      a.index[k] = b.index[k];
    }
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_LOOPS_H
