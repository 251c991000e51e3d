// LU with partial pivoting, in place. pivots: counted from 1, as LAPACK's; gives the first pivot that is 0, or 0.
namespace {

int32_t factor(const Matrix& a, int32_t* pivots) {
  int32_t info = 0;
  for (int64_t k = 0; k < a.m && k < a.n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < a.m; ++i) best = rough_magnitude(a(i, k)) > rough_magnitude(a(best, k)) ? i : best;
    pivots[k] = static_cast<int32_t>(best + 1);
    for (int64_t j = 0; best != k && j < a.n; ++j) {
      const Scalar kept = a(k, j);
      a(k, j) = a(best, j);
      a(best, j) = kept;
    }
    if (a(k, k) == 0) {
      info = info == 0 ? static_cast<int32_t>(k + 1) : info;
      continue;
    }
    for (int64_t i = k + 1; i < a.m; ++i) {
      const Scalar share = a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.n; ++j) a(i, j) -= share * a(k, j);
    }
  }
  return info;
}

// P, L and U of the k-th matrix; those that are empty are left out.
void unpack(const Matrix& lu, const int32_t* pivots, const ht_tensor* results, int64_t k, int64_t* rows, bool p, bool data) {
  const int64_t m = lu.m, n = lu.n, most = m < n ? m : n;
  for (int64_t i = 0; i < m; ++i) rows[i] = i;
  for (int64_t i = 0; i < most; ++i) {
    const int64_t kept = rows[i];
    rows[i] = rows[pivots[i] - 1];
    rows[pivots[i] - 1] = kept;
  }
  for (int64_t i = 0; p && i < m; ++i)
    for (int64_t j = 0; j < m; ++j) put(results[0], (k * m + i) * m + j, rows[j] == i ? 1 : 0);
  for (int64_t i = 0; data && i < m; ++i)
    for (int64_t j = 0; j < most; ++j) put(results[1], (k * m + i) * most + j, i > j ? lu(i, j) : Scalar(i == j ? 1 : 0));
  for (int64_t i = 0; data && i < most; ++i)
    for (int64_t j = 0; j < n; ++j) put(results[2], (k * most + i) * n + j, i <= j ? lu(i, j) : Scalar(0));
}

}  // namespace

// linalg_lu_factor_ex(A, pivot, check_errors) -> LU, pivots, info.
int32_t ht_linalg_lu_factor_ex(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t m = rows_of(a), n = columns_of(a), most = m < n ? m : n;
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix lu = whole(work, m, n);
    load(a, k, lu);
    static_cast<int32_t*>(call->results[2].data)[k] = factor(lu, static_cast<int32_t*>(call->results[1].data) + k * most);
    store(lu, call->results[0], k);
  });
  return 0;
}

// linalg_lu(A, pivot) -> P, L, U.
int32_t ht_linalg_lu(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t m = rows_of(a), n = columns_of(a);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix lu = whole(work, m, n);
    int64_t* rows = reinterpret_cast<int64_t*>(work + m * n);
    int32_t* pivots = reinterpret_cast<int32_t*>(rows + m);
    load(a, k, lu);
    factor(lu, pivots);
    unpack(lu, pivots, call->results, k, rows, true, true);
  });
  return 0;
}

// lu_unpack(LU, pivots, unpack_data, unpack_pivots) -> P, L, U.
int32_t ht_lu_unpack(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t m = rows_of(a), n = columns_of(a), most = m < n ? m : n;
  const int32_t* pivots = static_cast<const int32_t*>(given(call, 1).data);
  for (int64_t i = 0; i < ht_numel(&given(call, 1)); ++i)
    if (pivots[i] < 1 || pivots[i] > m) return ht_fail(call, "a pivot is no row of the matrix");
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix lu = whole(work, m, n);
    load(a, k, lu);
    unpack(lu, pivots + k * most, call->results, k, reinterpret_cast<int64_t*>(work + m * n), flag(call, 3), flag(call, 2));
  });
  return 0;
}
