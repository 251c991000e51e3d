// linalg_cholesky_ex(A, upper, check_errors) -> L, or U = L^H, and info: the first pivot that is not above 0, or 0. Only the
// triangle of A that is asked for is read: the upper one as the lower one of its transpose.
int32_t ht_linalg_cholesky_ex(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t n = rows_of(a);
  const bool upper = flag(call, 1);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix l = upper ? transposed(whole(work, n, n)) : whole(work, n, n);
    int32_t info = 0;
    load(a, k, whole(work, n, n));
    for (int64_t j = 0; j < n; ++j) {
      double pivot = real_part(l(j, j));
      for (int64_t i = 0; i < j; ++i) pivot -= square(l(j, i));
      if (!(pivot > 0) && info == 0) info = static_cast<int32_t>(j + 1);
      l(j, j) = root(pivot);
      for (int64_t i = j + 1; i < n; ++i) {
        Scalar sum = l(i, j);
        for (int64_t at = 0; at < j; ++at) sum -= l(i, at) * conjugate(l(j, at));
        l(i, j) = sum / l(j, j);
      }
      for (int64_t i = 0; i < j; ++i) l(i, j) = 0;
    }
    store(whole(work, n, n), call->results[0], k);
    static_cast<int32_t*>(call->results[1].data)[k] = info;
  });
  return 0;
}

// linalg_solve_triangular(A, B, upper, left, unitriangular) -> X of A X = B, or of X A = B; both have one batch.
int32_t ht_linalg_solve_triangular(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &b = given(call, 1);
  const int64_t n = rows_of(a);
  const bool left = flag(call, 3), unit = flag(call, 4), upper = flag(call, 2) == left;
  each(call, batch_of(b), [&](int64_t k, Scalar* work) {
    const Matrix whole_a = whole(work, n, n), whole_x = whole(work + n * n, rows_of(b), columns_of(b));
    load(a, k, whole_a);
    load(b, k, whole_x);
    const Matrix t = left ? whole_a : transposed(whole_a), x = left ? whole_x : transposed(whole_x);
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = upper ? n - 1 - step : step;
      for (int64_t at = upper ? i + 1 : 0; at < (upper ? n : i); ++at)
        for (int64_t j = 0; j < x.n; ++j) x(i, j) -= t(i, at) * x(at, j);
      for (int64_t j = 0; !unit && j < x.n; ++j) x(i, j) /= t(i, i);
    }
    store(whole_x, call->results[0], k);
  });
  return 0;
}
