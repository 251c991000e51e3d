// Stable sorting and the k extreme elements along an axis, with indices.
//
// Elements are sorted by keys: unsigned integers in the same order as the elements, where NaN is above everything and
// -0 equals 0, complemented for descending order. Equal keys keep their order, so the result is the only stable one.
// Long rows are sorted by radix, a byte at a time from the lowest, skipping bytes that all keys share.
#ifndef HARDTACK_TEMPLATES_SORT_H
#define HARDTACK_TEMPLATES_SORT_H

#include "parallel.h"
#include "simd.h"
#include "workspace.h"

namespace ht {

namespace detail {

template <size_t nbytes>
struct KeyOf {
  using type = uint32_t;
};
template <>
struct KeyOf<8> {
  using type = uint64_t;
};
template <class T>
using key_type = typename KeyOf<sizeof(T)>::type;

template <class T>
HT_INLINE key_type<T> float_key(T v) {
  using K = key_type<T>;
  constexpr K sign = K{1} << (8 * sizeof(K) - 1);
  if (v != v) return ~K{0};
  const K bits = bit_copy<K>(static_cast<T>(v + T{0}));  // -0 + 0 is 0
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

template <class T>
HT_INLINE key_type<T> sort_key(T v) {
  using K = key_type<T>;
  if constexpr (is_half<T>) {
    return float_key<float>(load1(&v));
  } else if constexpr (is_float<T>) {
    return float_key(v);
  } else if constexpr (static_cast<T>(-1) < static_cast<T>(0)) {
    return static_cast<K>(static_cast<K>(v) ^ (K{1} << (8 * sizeof(K) - 1)));
  } else {
    return static_cast<K>(v);
  }
}

template <class K>
struct SortItem {
  K key;
  uint32_t index;
};

template <class K>
HT_INLINE bool before(const SortItem<K>& a, const SortItem<K>& b) {
  return a.key < b.key || (a.key == b.key && a.index < b.index);
}

template <class K>
inline void insertion_sort(SortItem<K>* items, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const SortItem<K> x = items[i];
    int64_t j = i;
    for (; j > 0 && x.key < items[j - 1].key; j--) items[j] = items[j - 1];
    items[j] = x;
  }
}

// Sorts `items`, which are in the order of their indices, using `spare` of the same size; returns where the result is.
template <class K>
inline SortItem<K>* radix_sort(SortItem<K>* items, SortItem<K>* spare, int64_t n) {
  uint32_t counts[sizeof(K)][256] = {};
  for (int64_t i = 0; i < n; i++) {
    for (size_t b = 0; b < sizeof(K); b++) counts[b][(items[i].key >> (8 * b)) & 255]++;
  }
  for (size_t b = 0; b < sizeof(K); b++) {
    if (counts[b][(items[0].key >> (8 * b)) & 255] == n) continue;
    uint32_t start = 0;
    for (uint32_t& count : counts[b]) {
      const uint32_t here = count;
      count = start;
      start += here;
    }
    for (int64_t i = 0; i < n; i++) spare[counts[b][(items[i].key >> (8 * b)) & 255]++] = items[i];
    SortItem<K>* const swap = items;
    items = spare;
    spare = swap;
  }
  return items;
}

constexpr int64_t kInsertionLimit = 48;

template <class K>
inline SortItem<K>* stable_sort(SortItem<K>* items, SortItem<K>* spare, int64_t n) {
  if (n > kInsertionLimit) return radix_sort(items, spare, n);
  insertion_sort(items, n);
  return items;
}

// Restores the heap (largest first) below `at`.
template <class K>
inline void sift_down(SortItem<K>* heap, int64_t n, int64_t at) {
  const SortItem<K> x = heap[at];
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
    if (!before(x, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = x;
}

template <class T>
HT_INLINE key_type<T> ordered_key(T v, bool descending) {
  const key_type<T> key = sort_key(v);
  return descending ? static_cast<key_type<T>>(~key) : key;
}

// The k first of n, unsorted, by a heap of the k best so far.
template <class T>
inline void select_first(const T* x, int64_t stride, int64_t n, int64_t k, bool descending,
                         SortItem<key_type<T>>* heap) {
  using Item = SortItem<key_type<T>>;
  for (int64_t i = 0; i < k; i++) heap[i] = Item{ordered_key(x[i * stride], descending), static_cast<uint32_t>(i)};
  for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(heap, k, i);
  for (int64_t i = k; i < n; i++) {
    const key_type<T> key = ordered_key(x[i * stride], descending);
    if (key >= heap[0].key) continue;  // an equal key comes later and so does not go before
    heap[0] = Item{key, static_cast<uint32_t>(i)};
    sift_down(heap, k, 0);
  }
  for (int64_t left = k - 1; left > 0; left--) {
    const Item top = heap[0];
    heap[0] = heap[left];
    heap[left] = top;
    sift_down(heap, left, 0);
  }
}

template <class T, class Item>
HT_INLINE void emit_sorted(const T* x, int64_t stride, const Item* items, int64_t k, T* values, int64_t* indices,
                           int64_t out_stride) {
  for (int64_t i = 0; i < k; i++) {
    const int64_t at = items[i].index;
    if (values != nullptr) values[i * out_stride] = x[at * stride];
    if (indices != nullptr) indices[i * out_stride] = at;
  }
}

}  // namespace detail

// Of every row of x [outer, n, inner] along its middle axis, the k first elements in ascending or descending order, with
// their indices; k = n sorts. values and indices are [outer, k, inner], either may be null. NaN counts as the greatest.
// Equal elements come in the order of their indices. n is below 2^32.
// Workspace of a worker: n items, and n that they are merged into.
template <class T>
inline void sort_rows(const HtKernelArgs* args, const T* x, int64_t outer, int64_t n, int64_t inner, int64_t k,
                      bool descending, T* values, int64_t* indices) {
  using Item = detail::SortItem<detail::key_type<T>>;
  static_assert(sizeof(Item) == (sizeof(T) == 8 ? kWideItemNbytes : kItemNbytes), "workspaces are for such items");
  if (k == 0) return;
  // Short rows go in batches, so that a task is worth handing out.
  const int64_t rows = outer * inner, batch = most(1, 2048 / n);
  parallel_for(args, ceil_div(rows, batch), [&](int64_t index, int32_t worker) {
    Item* const items = reinterpret_cast<Item*>(worker_workspace(args, worker));
    for (int64_t row = index * batch; row < least(rows, (index + 1) * batch); row++) {
      const int64_t o = row / inner, i = row % inner;
      const T* const from = x + o * n * inner + i;
      const int64_t to = o * k * inner + i;
      const Item* sorted = items;
      if (k < n && k <= n / 8) {
        detail::select_first(from, inner, n, k, descending, items);
      } else {
        for (int64_t j = 0; j < n; j++) items[j] = Item{detail::ordered_key(from[j * inner], descending),
                                                        static_cast<uint32_t>(j)};
        sorted = detail::stable_sort(items, items + n, n);
      }
      detail::emit_sorted(from, inner, sorted, k, values == nullptr ? nullptr : values + to,
                          indices == nullptr ? nullptr : indices + to, inner);
    }
  });
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_SORT_H
