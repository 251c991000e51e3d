// Householder's reflections as LAPACK has them: H = I - tau v v^H, v(0) = 1, the rest of v below the diagonal.
// Of complex numbers tau is complex, and R's diagonal is real.

namespace {

// The length of column k from row `first` on, without overflow; NaN where a number is not finite.
double length(const Matrix& a, int64_t first, int64_t k) {
  const double most = size_of({&a(first < a.m ? first : 0, k), first < a.m ? a.m - first : 0, 1, a.row, a.column});
  if (!(most > 0)) return most;  // NaN, too
  double sum = 0;
  for (int64_t i = first; i < a.m; ++i) sum += square(a(i, k) / most);
  return most * root(sum);
}

// Makes column k zero below the diagonal, by H^H, and keeps v there; gives tau.
Scalar reflect(const Matrix& a, int64_t k) {
  const Scalar alpha = a(k, k);
  const double below = length(a, k + 1, k);
  if (below == 0 && imaginary_part(alpha) == 0) return 0;
  const double larger = magnitude(alpha) > below ? magnitude(alpha) : below;
  const double both = larger * root(square(alpha / larger) + square(below / larger));
  const double beta = real_part(alpha) >= 0 ? -both : both;
  for (int64_t i = k + 1; i < a.m; ++i) a(i, k) /= alpha - beta;
  a(k, k) = beta;
  return (beta - alpha) / beta;
}

// H c, for the columns of c from `first` on, with v in column k of a; sums: one for each column of c. With the
// conjugate of tau H^H c.
void apply(const Matrix& a, int64_t k, Scalar tau, const Matrix& c, int64_t first, Scalar* sums) {
  for (int64_t j = first; j < c.n; ++j) sums[j] = c(k, j);
  for (int64_t i = k + 1; i < c.m; ++i)
    for (int64_t j = first; j < c.n; ++j) sums[j] += conjugate(a(i, k)) * c(i, j);
  for (int64_t j = first; j < c.n; ++j) c(k, j) -= tau * sums[j];
  for (int64_t i = k + 1; i < c.m; ++i)
    for (int64_t j = first; j < c.n; ++j) c(i, j) -= tau * a(i, k) * sums[j];
}

// R, with the v below its diagonal, in place; tau: one for each column that has a diagonal element.
void factor(const Matrix& a, Scalar* tau, Scalar* sums) {
  for (int64_t k = 0; k < a.m && k < a.n; ++k) {
    tau[k] = reflect(a, k);
    apply(a, k, conjugate(tau[k]), a, k + 1, sums);
  }
}

// The first columns of H0 H1 ... of `count` reflections.
void multiply_out(const Matrix& a, const Scalar* tau, int64_t count, const Matrix& q, Scalar* sums) {
  make_identity(q);
  for (int64_t k = count; k-- > 0;) apply(a, k, tau[k], q, k, sums);
}

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace
