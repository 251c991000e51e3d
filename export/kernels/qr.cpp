// linalg_qr(A, mode) -> Q, R. mode: "reduced", "complete", or "r", whose Q is empty.
int32_t ht_linalg_qr(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &q = call->results[0], &r = call->results[1];
  const int64_t m = rows_of(a), n = columns_of(a), most = smaller(m, n);
  const bool only_r = call->arguments[1].value.text[0] == 'r' && call->arguments[1].value.text[1] == 0;
  const int64_t wide = only_r ? 0 : columns_of(q);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix factors = whole(work, m, n);
    Scalar *tau = work + m * n, *sums = tau + most;
    load(a, k, factors);
    factor(factors, tau, sums);
    if (!only_r) {
      const Matrix made = whole(sums + m + n, m, wide);
      multiply_out(factors, tau, most, made, sums);
      store(made, q, k);
    }
    for (int64_t i = 1; i < m; ++i)
      for (int64_t j = 0; j < i && j < n; ++j) factors(i, j) = 0;
    store(factors, r, k);
  });
  return 0;
}

// geqrf(A) -> the factored A, tau.
int32_t ht_geqrf(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &tau = call->results[1];
  const int64_t m = rows_of(a), n = columns_of(a), most = smaller(m, n);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix factors = whole(work, m, n);
    Scalar* made = work + m * n;
    load(a, k, factors);
    factor(factors, made, made + most);
    store(factors, call->results[0], k);
    for (int64_t i = 0; i < most; ++i) put(tau, k * most + i, made[i]);
  });
  return 0;
}

// linalg_householder_product(A, tau) -> the first columns of Q.
int32_t ht_householder_product(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &tau = given(call, 1);
  const int64_t m = rows_of(a), n = columns_of(a), count = columns_of(tau);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix factors = whole(work, m, n), made = whole(work + m * n, m, n);
    Scalar *taus = made.at + m * n, *sums = taus + count;
    load(a, k, factors);
    for (int64_t i = 0; i < count; ++i) taus[i] = element(tau, k * count + i);
    multiply_out(factors, taus, count, made, sums);
    store(made, call->results[0], k);
  });
  return 0;
}

// ormqr(A, tau, C, left, transpose) -> Q C, Q^H C, C Q or C Q^H.
int32_t ht_ormqr(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &tau = given(call, 1), &c = given(call, 2);
  const int64_t m = rows_of(a), n = columns_of(a), count = columns_of(tau);
  const bool left = flag(call, 3), forward = flag(call, 4) == left;
  each(call, batch_of(c), [&](int64_t k, Scalar* work) {
    const Matrix factors = whole(work, m, n), made = whole(work + m * n, rows_of(c), columns_of(c));
    Scalar* sums = made.at + made.m * made.n;
    load(a, k, factors);
    load(c, k, made);
    const Matrix used = left ? made : transposed(made);  // C Q is the adjoint of Q^H C^H
    if (!left) conjugate_all(made);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step = forward ? i : count - 1 - i;
      const Scalar given = element(tau, k * count + step);
      apply(factors, step, forward ? conjugate(given) : given, used, 0, sums);
    }
    if (!left) conjugate_all(made);
    store(made, call->results[0], k);
  });
  return 0;
}
