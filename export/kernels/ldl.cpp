// L D L^T with pivots of one or two rows (Bunch, Kaufman), as LAPACK's sytrf has them in the lower triangle, or, of
// Hermitian matrices, L D L^H as hetrf. Rows of L are exchanged as those of what is left at that time.
namespace {

constexpr double kAlpha = 0.6403882032022076;  // (1 + sqrt(17)) / 8, which bounds growth

// What stands on the other side of the diagonal.
Scalar mirrored(const Scalar& x, bool hermitian) { return hermitian ? conjugate(x) : x; }

// An element of the diagonal: of a Hermitian matrix it is real, whatever memory has there.
double diagonal_size(const Matrix& a, int64_t k, bool hermitian) {
  return hermitian ? magnitude(real_part(a(k, k))) : rough_magnitude(a(k, k));
}

// The row of the largest element of column k in rows first to last - 1.
int64_t largest_row(const Matrix& a, int64_t k, int64_t first, int64_t last) {
  int64_t best = first;
  for (int64_t i = first + 1; i < last; ++i) best = rough_magnitude(a(i, k)) > rough_magnitude(a(best, k)) ? i : best;
  return best;
}

struct Pivot {
  int64_t row;  // that changes places with the last row of the pivot
  int64_t count;
};

// Of column k on; count 0 where all of the column is 0.
Pivot choose(const Matrix& a, int64_t k, bool hermitian) {
  const double here = diagonal_size(a, k, hermitian);
  if (k + 1 == a.n) return {k, here == 0 ? 0 : 1};
  const int64_t best = largest_row(a, k, k + 1, a.n);
  const double column = rough_magnitude(a(best, k));
  if (here == 0 && column == 0) return {k, 0};
  if (here >= kAlpha * column) return {k, 1};
  double row = rough_magnitude(a(best, largest_row(transposed(a), best, k, best)));
  if (best + 1 < a.n) {
    const double below = rough_magnitude(a(largest_row(a, best, best + 1, a.n), best));
    row = below > row ? below : row;
  }
  if (here >= kAlpha * column * (column / row)) return {k, 1};
  return {best, diagonal_size(a, best, hermitian) >= kAlpha * row ? 1 : 2};
}

void swap(Scalar& a, Scalar& b) {
  const Scalar kept = a;
  a = b;
  b = kept;
}

// Rows and columns `from` and `to` of what is left from row k on, of which the lower triangle is there; from < to.
void exchange(const Matrix& a, int64_t k, int64_t from, int64_t to, bool hermitian) {
  for (int64_t i = to + 1; i < a.n; ++i) swap(a(i, from), a(i, to));
  for (int64_t i = from + 1; i < to; ++i) {
    const Scalar kept = mirrored(a(i, from), hermitian);
    a(i, from) = mirrored(a(to, i), hermitian);
    a(to, i) = kept;
  }
  a(to, from) = mirrored(a(to, from), hermitian);
  swap(a(from, from), a(to, to));
  if (from > k) swap(a(from, k), a(to, k));
}

// The 2 x 2 block of D at k, over its other elements: what is below the diagonal, and beside it mirrored.
struct Block {
  Scalar below, above, first, second, factor;
};

Block block_at(const Matrix& a, int64_t k, bool hermitian) {
  const Scalar below = a(k + 1, k), above = mirrored(below, hermitian);
  const Scalar first = a(k, k) / above, second = a(k + 1, k + 1) / below;
  return {below, above, first, second, Scalar(1) / (first * second - Scalar(1))};
}

// What is left behind a pivot of `count` rows at k, whose columns become those of L.
void eliminate(const Matrix& a, int64_t k, int64_t count, bool hermitian) {
  const Block block = count == 2 ? block_at(a, k, hermitian) : Block{};
  for (int64_t j = k + count; j < a.n; ++j) {
    Scalar made[2] = {count == 1 ? a(j, k) / a(k, k) : Scalar(0), 0};
    if (count == 2) {
      made[0] = (block.second * a(j, k) - a(j, k + 1)) * block.factor / block.above;
      made[1] = (block.first * a(j, k + 1) - a(j, k)) * block.factor / block.below;
    }
    for (int64_t i = j; i < a.n; ++i)
      for (int64_t at = 0; at < count; ++at) a(i, j) -= a(i, k + at) * mirrored(made[at], hermitian);
    for (int64_t at = 0; at < count; ++at) a(j, k + at) = made[at];
  }
}

// L and D in place. pivots: counted from 1, below 0 twice for those of two rows; gives the first pivot that is 0, or 0.
int32_t factor(const Matrix& a, int32_t* pivots, bool hermitian) {
  int32_t info = 0;
  for (int64_t k = 0; k < a.n;) {
    const Pivot pivot = choose(a, k, hermitian);
    const int64_t last = pivot.count == 2 ? k + 1 : k;
    if (pivot.count == 0) info = info == 0 ? static_cast<int32_t>(k + 1) : info;
    if (pivot.row != last) exchange(a, k, last, pivot.row, hermitian);
    for (int64_t i = k; hermitian && i <= last; ++i) a(i, i) = real_part(a(i, i));
    if (pivot.count > 0) eliminate(a, k, pivot.count, hermitian);
    for (int64_t i = k; i <= last; ++i)
      pivots[i] = static_cast<int32_t>(pivot.count == 2 ? -pivot.row - 1 : pivot.row + 1);
    k = last + 1;
  }
  return info;
}

void swap_rows(const Matrix& x, int64_t i, int64_t k) {
  for (int64_t j = 0; i != k && j < x.n; ++j) swap(x(i, j), x(k, j));
}

// x = D^-1 L^-1 x, rows exchanged on the way.
void solve_down(const Matrix& a, const int32_t* pivots, const Matrix& x, bool hermitian) {
  for (int64_t k = 0; k < a.n;) {
    const int64_t count = pivots[k] < 0 ? 2 : 1, last = k + count - 1;
    swap_rows(x, last, (pivots[k] < 0 ? -pivots[k] : pivots[k]) - 1);
    for (int64_t i = last + 1; i < a.n; ++i)
      for (int64_t at = k; at <= last; ++at)
        for (int64_t j = 0; j < x.n; ++j) x(i, j) -= a(i, at) * x(at, j);
    const Block block = count == 2 ? block_at(a, k, hermitian) : Block{};
    for (int64_t j = 0; j < x.n; ++j) {
      if (count == 1) {
        x(k, j) /= a(k, k);
        continue;
      }
      const Scalar y = x(k, j) / block.above, z = x(k + 1, j) / block.below;
      x(k, j) = (block.second * y - z) * block.factor;
      x(k + 1, j) = (block.first * z - y) * block.factor;
    }
    k = last + 1;
  }
}

// x = L^-T x, or L^-H x.
void solve_up(const Matrix& a, const int32_t* pivots, const Matrix& x, bool hermitian) {
  for (int64_t last = a.n - 1; last >= 0;) {
    const int64_t k = pivots[last] < 0 ? last - 1 : last;
    for (int64_t i = last + 1; i < a.n; ++i)
      for (int64_t at = k; at <= last; ++at)
        for (int64_t j = 0; j < x.n; ++j) x(at, j) -= mirrored(a(i, at), hermitian) * x(i, j);
    swap_rows(x, last, (pivots[last] < 0 ? -pivots[last] : pivots[last]) - 1);
    last = k - 1;
  }
}

// Whether pivots are rows from their own on, those of two rows in pairs.
bool are_pivots(const int32_t* pivots, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    const int64_t given = pivots[k], last = given < 0 ? k + 1 : k, row = (given < 0 ? -given : given) - 1;
    if (last >= n || pivots[last] != pivots[k] || row < last || row >= n) return false;
    k = last;
  }
  return true;
}

}  // namespace

// linalg_ldl_factor_ex(A, hermitian, check_errors) -> LD, pivots, info. Only the lower triangle of A is read; what is not
// finite makes that of LD NaN.
int32_t ht_linalg_ldl_factor_ex(const ht_kernel_call* call) {
  const ht_tensor& a = given(call, 0);
  const int64_t n = rows_of(a);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix ld = whole(work, n, n);
    int32_t* pivots = static_cast<int32_t*>(call->results[1].data) + k * n;
    load(a, k, ld);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) ld(i, j) = 0;
    const double size = size_of(ld);
    static_cast<int32_t*>(call->results[2].data)[k] = factor(ld, pivots, flag(call, 1));
    for (int64_t i = 0; size != size && i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) ld(i, j) = size;
    store(ld, call->results[0], k);
  });
  return 0;
}

// linalg_ldl_solve(LD, pivots, B, hermitian) -> X of A X = B; all have one batch.
int32_t ht_linalg_ldl_solve(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &b = given(call, 2);
  const int64_t n = rows_of(a);
  const int32_t* pivots = static_cast<const int32_t*>(given(call, 1).data);
  for (int64_t k = 0; k < batch_of(a); ++k)
    if (!are_pivots(pivots + k * n, n)) return ht_fail(call, "pivots are none of an LDL factorisation");
  each(call, batch_of(b), [&](int64_t k, Scalar* work) {
    const Matrix ld = whole(work, n, n), x = whole(work + n * n, n, columns_of(b));
    load(a, k, ld);
    load(b, k, x);
    solve_down(ld, pivots + k * n, x, flag(call, 3));
    solve_up(ld, pivots + k * n, x, flag(call, 3));
    store(x, call->results[0], k);
  });
  return 0;
}
