// Eigenvalues of symmetric matrices, or of Hermitian ones, by Jacobi's rotations (Golub, Van Loan, Matrix Computations, 8.5).
namespace {

// Columns p and q of a, the latter by a phase, rotated.
void rotate_columns(const Matrix& a, int64_t p, int64_t q, double cosine, double sine, const Scalar& by) {
  for (int64_t i = 0; i < a.m; ++i) {
    const Scalar x = a(i, p), y = a(i, q) * by;
    a(i, p) = cosine * x - sine * y;
    a(i, q) = sine * x + cosine * y;
  }
}

// The rotation that makes s(p, q) zero, of s and of the columns of v. What is complex is made real by a phase before.
void rotate(const Matrix& s, const Matrix& v, int64_t p, int64_t q) {
  const Scalar by = conjugate(phase(s(p, q)));
  const double theta = (real_part(s(q, q)) - real_part(s(p, p))) / (2 * real_part(s(p, q) * by));
  const double t = (theta >= 0 ? 1 : -1) / (magnitude(theta) + root(theta * theta + 1));
  const double cosine = 1 / root(t * t + 1), sine = t * cosine;
  rotate_columns(s, p, q, cosine, sine, by);
  rotate_columns(transposed(s), p, q, cosine, sine, conjugate(by));
  rotate_columns(v, p, q, cosine, sine, by);
}

// Each element beside the diagonal that is above `small` made zero once; true if there was one.
bool sweep(const Matrix& s, const Matrix& v, double small) {
  bool rotated = false;
  for (int64_t p = 0; p < s.n; ++p)
    for (int64_t q = p + 1; q < s.n; ++q) {
      if (!(magnitude(s(p, q)) > small)) continue;
      rotate(s, v, p, q);
      rotated = true;
    }
  return rotated;
}

}  // namespace

// _linalg_eigh(A, UPLO, compute_v) -> eigenvalues, ascending, and eigenvectors in columns; without compute_v these are
// empty. What is not finite makes all of them NaN.
int32_t ht_linalg_eigh(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &values = call->results[0], &vectors = call->results[1];
  const int64_t n = rows_of(a);
  const bool lower = (call->arguments[1].value.text[0] | 32) == 'l', with_vectors = flag(call, 2);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix s = whole(work, n, n), v = whole(work + n * n, with_vectors ? n : 0, n);
    int64_t* order = reinterpret_cast<int64_t*>(work + 2 * n * n);
    load(a, k, s);
    for (int64_t i = 0; i < n; ++i) {
      s(i, i) = real_part(s(i, i));  // as LAPACK, which never looks at the other part
      for (int64_t j = 0; j < i; ++j) (lower ? s(j, i) : s(i, j)) = conjugate(lower ? s(i, j) : s(j, i));
    }
    make_identity(v);
    const double size = size_of(s), unit = unit_for(size), small = kEps / 8 * size * unit;
    if (size != size) {
      for (int64_t i = 0; i < n; ++i) put_real(values, k * n + i, size);
      return fill(vectors, k, v.m * n, size);
    }
    for (int64_t i = 0; i < n * n; ++i) s.at[i] *= unit;
    for (int turn = 0; turn < kMostSweeps && sweep(s, v, small); ++turn) {
    }
    sort(n, order, [&](int64_t i, int64_t j) { return real_part(s(i, i)) < real_part(s(j, j)); });
    for (int64_t i = 0; i < n; ++i) {
      put_real(values, k * n + i, real_part(s(order[i], order[i])) / unit);
      for (int64_t j = 0; j < v.m; ++j) put(vectors, (k * n + j) * n + i, v(j, order[i]));
    }
  });
  return 0;
}
