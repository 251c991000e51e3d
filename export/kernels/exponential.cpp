// The exponential of matrices: halved until its norm is at most 1, a Taylor polynomial, and squared as often.
namespace {

constexpr int kTerms = 18;  // 1 / 19! is below half an ulp of double

// The largest sum of a column's magnitudes.
double norm(const Matrix& a) {
  double most = 0;
  for (int64_t j = 0; j < a.n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.m; ++i) sum += magnitude(a(i, j));
    most = sum > most ? sum : most;
  }
  return most;
}

// to = a b
void multiply(const Matrix& a, const Matrix& b, const Matrix& to) {
  for (int64_t i = 0; i < a.m; ++i) {
    for (int64_t j = 0; j < b.n; ++j) to(i, j) = 0;
    for (int64_t at = 0; at < a.n; ++at)
      for (int64_t j = 0; j < b.n; ++j) to(i, j) += a(i, at) * b(at, j);
  }
}

}  // namespace

// linalg_matrix_exp(A) -> e^A; NaN where A has what is not finite.
int32_t ht_linalg_matrix_exp(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t n = rows_of(a);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix x = whole(work, n, n);
    Matrix sum = whole(work + n * n, n, n), next = whole(work + 2 * n * n, n, n);
    load(a, k, x);
    const double finite = size_of(x);
    if (finite != finite) return fill(call->results[0], k, n * n, finite);
    double size = norm(x);
    int squares = 0;
    double scale = 1;
    for (; size > 1; size /= 2, scale /= 2) ++squares;
    for (int64_t i = 0; i < n * n; ++i) x.at[i] *= scale;
    make_identity(sum);
    for (int term = kTerms; term > 0; --term) {  // 1 + x / term (what is behind)
      multiply(x, sum, next);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) sum(i, j) = next(i, j) / term + (i == j ? 1 : 0);
    }
    for (; squares > 0; --squares) {
      multiply(sum, sum, next);
      const Matrix kept = sum;
      sum = next;
      next = kept;
    }
    store(sum, call->results[0], k);
  });
  return 0;
}
