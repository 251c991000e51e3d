// Singular values by Jacobi's rotations of columns (Hestenes): what is left has columns at right angles, whose lengths
// they are.
namespace {

// A rotation of columns p and q of a, the latter by a phase.
void rotate(const Matrix& a, int64_t p, int64_t q, double cosine, double sine, const Scalar& by) {
  for (int64_t i = 0; i < a.m; ++i) {
    const Scalar x = a(i, p), y = a(i, q) * by;
    a(i, p) = cosine * x - sine * y;
    a(i, q) = sine * x + cosine * y;
  }
}

// True while columns had to be rotated.
bool sweep(const Matrix& a, const Matrix& v) {
  bool rotated = false;
  for (int64_t p = 0; p < a.n; ++p)
    for (int64_t q = p + 1; q < a.n; ++q) {
      double alpha = 0, beta = 0;
      Scalar both = 0;
      for (int64_t i = 0; i < a.m; ++i) {
        alpha += square(a(i, p));
        beta += square(a(i, q));
        both += conjugate(a(i, p)) * a(i, q);
      }
      const Scalar by = conjugate(phase(both));
      const double gamma = real_part(both * by);
      if (!(magnitude(gamma) > kEps * root(alpha) * root(beta)) || !(magnitude(gamma) > 0x1p-900)) continue;
      const double zeta = (beta - alpha) / (2 * gamma);
      const double t = (zeta >= 0 ? 1 : -1) / (magnitude(zeta) + root(1 + zeta * zeta));
      const double cosine = 1 / root(1 + t * t);
      rotate(a, p, q, cosine, cosine * t, by);
      rotate(v, p, q, cosine, cosine * t, by);
      rotated = true;
    }
  return rotated;
}

Scalar product(const Matrix& u, int64_t p, int64_t q) {
  Scalar sum = 0;
  for (int64_t i = 0; i < u.m; ++i) sum += conjugate(u(i, p)) * u(i, q);
  return sum;
}

// Column k of u at right angles to those in front, from the axis that is farthest from them.
void complete(const Matrix& u, int64_t k) {
  int64_t best = 0;
  double least = 2;
  for (int64_t i = 0; i < u.m; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += square(u(i, j));
    if (sum < least) best = i, least = sum;
  }
  for (int64_t i = 0; i < u.m; ++i) u(i, k) = i == best ? 1 : 0;
  for (int turn = 0; turn < 2; ++turn)
    for (int64_t j = 0; j < k; ++j) {
      const Scalar share = product(u, j, k);
      for (int64_t i = 0; i < u.m; ++i) u(i, k) -= share * u(i, j);
    }
  const double size = root(real_part(product(u, k, k)));
  for (int64_t i = 0; i < u.m; ++i) u(i, k) /= size;
}

}  // namespace

// _linalg_svd(A, full_matrices, compute_uv, driver) -> U, S, Vh; compute_uv false: U and Vh are empty. What is not finite
// makes all of them NaN.
int32_t ht_linalg_svd(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &left = call->results[0], &values = call->results[1], &right = call->results[2];
  const bool wide = columns_of(a) > rows_of(a), with_vectors = flag(call, 2);
  const int64_t m = wide ? columns_of(a) : rows_of(a), n = wide ? rows_of(a) : columns_of(a);
  const int64_t tall = flag(call, 1) ? m : n;  // columns of the longer vectors
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix s = whole(work, m, n), v = whole(s.at + m * n, n, n), u = whole(v.at + n * n, m, tall);
    double* sizes = reinterpret_cast<double*>(u.at + m * tall);
    int64_t* order = reinterpret_cast<int64_t*>(sizes + n);
    load(a, k, wide ? transposed(s) : s);
    const double most = size_of(s), scale = most > 0 ? most : 1;
    if (most != most) {
      fill(left, k, with_vectors ? rows_of(left) * columns_of(left) : 0, most);
      fill(right, k, with_vectors ? rows_of(right) * columns_of(right) : 0, most);
      for (int64_t i = 0; i < n; ++i) put_real(values, k * n + i, most);
      return;
    }
    for (int64_t i = 0; i < m * n; ++i) s.at[i] /= scale;
    make_identity(v);
    for (int turn = 0; turn < kMostSweeps && sweep(s, v); ++turn) {
    }
    for (int64_t j = 0; j < n; ++j) sizes[j] = root(real_part(product(s, j, j)));
    sort(n, order, [&](int64_t i, int64_t j) { return sizes[i] > sizes[j]; });
    for (int64_t j = 0; j < n; ++j) put_real(values, k * n + j, sizes[order[j]] * scale);
    if (!with_vectors) return;
    for (int64_t j = 0; j < tall; ++j) {
      if (j >= n || sizes[order[j]] <= 0x1p-500) {
        complete(u, j);
      } else {
        for (int64_t i = 0; i < m; ++i) u(i, j) = s(i, order[j]) / sizes[order[j]];
      }
    }
    // A = u s v^H, or, where A is wide, A^T
    const ht_tensor &longer = wide ? right : left, &shorter = wide ? left : right;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < tall; ++j) put(longer, wide ? (k * tall + j) * m + i : (k * m + i) * tall + j, u(i, j));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) put(shorter, (k * n + (wide ? i : j)) * n + (wide ? j : i), conjugate(v(i, order[j])));
  });
  return 0;
}
