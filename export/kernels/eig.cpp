// Eigenvalues of general matrices (Golub, Van Loan, Matrix Computations, 7.4, 7.5; LAPACK's dlahqr): balanced by powers
// of two, a Hessenberg matrix by reflections, made a Schur form by QR steps with two shifts, and eigenvectors from that.
namespace {

constexpr double kTiny = 0x1p-1000;

// c H: c - tau (c v) v^H, with v in column 0 of a.
void apply_right(const Matrix& a, Scalar tau, const Matrix& c) {
  for (int64_t i = 0; i < c.m; ++i) {
    Scalar sum = c(i, 0);
    for (int64_t j = 1; j < c.n; ++j) sum += c(i, j) * a(j, 0);
    sum *= tau;
    c(i, 0) -= sum;
    for (int64_t j = 1; j < c.n; ++j) c(i, j) -= sum * conjugate(a(j, 0));
  }
}

Matrix part(const Matrix& a, int64_t i, int64_t j, int64_t m, int64_t n) {
  return {m > 0 && n > 0 ? &a(i, j) : a.at, m, n, a.row, a.column};
}

// Rows divided and columns multiplied by powers of two, which scales has, until both are about as long.
void balance(const Matrix& a, double* scales) {
  for (int64_t i = 0; i < a.n; ++i) scales[i] = 1;
  bool changed = true;
  for (int turn = 0; changed && turn < kMostSweeps; ++turn) {
    changed = false;
    for (int64_t i = 0; i < a.n; ++i) {
      double column = 0, row = 0, factor = 1;
      for (int64_t j = 0; j < a.n; ++j) {
        if (j == i) continue;
        column += rough_magnitude(a(j, i));
        row += rough_magnitude(a(i, j));
      }
      if (!(column > kTiny) || !(row > kTiny)) continue;
      const double both = column + row;
      for (; column < row / 2; column *= 2, row /= 2) factor *= 2;
      for (; column >= row * 2; column /= 2, row *= 2) factor /= 2;
      if (column + row >= 0.95 * both) continue;
      scales[i] *= factor;
      for (int64_t j = 0; j < a.n; ++j) a(i, j) /= factor;
      for (int64_t j = 0; j < a.n; ++j) a(j, i) *= factor;
      changed = true;
    }
  }
}

// a = z h z^H, h in its place: nothing below the first subdiagonal.
void make_hessenberg(const Matrix& a, const Matrix& z, Scalar* sums) {
  make_identity(z);
  for (int64_t k = 0; k + 2 < a.n; ++k) {
    const int64_t below = a.n - k - 1;
    const Matrix rows = part(a, k + 1, k, below, below + 1);
    const Scalar tau = reflect(rows, 0);
    apply(rows, 0, conjugate(tau), rows, 1, sums);
    apply_right(rows, tau, part(a, 0, k + 1, a.n, below));
    apply_right(rows, tau, part(z, 0, k + 1, a.n, below));
    for (int64_t i = k + 2; i < a.n; ++i) a(i, k) = 0;
  }
}

// The eigenvalues of the 2 x 2 matrix (a b; c d), x and its product of b and c: in (x - a) (x - d) = product.
struct Shifts {
  Scalar a, d, product;
};

// z of the eigenvalues d + z, which is nearer to a, and d - b c / z; found: whether there are such Scalars.
Scalar half_apart(const Shifts& s, bool* found) {
  const Scalar p = (s.a - s.d) / 2, square = p * p + s.product;
  *found = has_root(square);
  const Scalar r = root(square);
  return real_part(conjugate(p) * r) >= 0 ? p + r : p - r;
}

// Those of the last two rows up to i: a pair, or twice the one that is nearer to the last element. Every tenth time
// others, for matrices that these go around in circles with.
Shifts shifts_of(const Matrix& h, int64_t i, int64_t turn) {
  const double size = rough_magnitude(h(i, i - 1)) + rough_magnitude(h(i - 1, i - 2));
  if (turn % 10 == 9) return {h(i, i) + 0.75 * size, h(i, i) + 0.75 * size, -0.4375 * size * size};
  const Shifts s = {h(i - 1, i - 1), h(i, i), h(i - 1, i) * h(i, i - 1)};
  bool found;
  const Scalar z = half_apart(s, &found);
  if (!found) return s;
  const Scalar nearer = z == 0 ? s.d : s.d - s.product / z;
  return {nearer, nearer, 0};
}

// The first row of the last block that ends with row i: behind it the subdiagonal is not small (Ahues, Tisseur).
int64_t block_of(const Matrix& h, int64_t i) {
  for (int64_t k = i; k > 0; --k) {
    const double below = rough_magnitude(h(k, k - 1)), above = rough_magnitude(h(k - 1, k));
    if (below <= kTiny) return k;
    double size = rough_magnitude(h(k - 1, k - 1)) + rough_magnitude(h(k, k));
    if (size == 0 && k > 1) size += rough_magnitude(h(k - 1, k - 2));
    if (size == 0 && k + 1 < h.n) size += rough_magnitude(h(k + 1, k));
    if (below > kEps * size) continue;
    const double x = rough_magnitude(h(k, k)), y = rough_magnitude(h(k - 1, k - 1) - h(k, k));
    const double most = below > above ? below : above, least = below > above ? above : below;
    const double far = x > y ? x : y, near = x > y ? y : x, whole = far + most;
    const double bound = kEps * (near * (far / whole));
    if (least * (most / whole) <= (bound > kTiny ? bound : kTiny)) return k;
  }
  return 0;
}

// The first column of the product of both shifted matrices, from row m on, in v.
void start(const Matrix& h, const Shifts& s, int64_t m, Scalar* v) {
  const Scalar below = h(m + 1, m);
  v[0] = (h(m, m) - s.a) * (h(m, m) - s.d) - s.product + h(m, m + 1) * below;
  v[1] = below * (h(m, m) + h(m + 1, m + 1) - s.a - s.d);
  v[2] = below * h(m + 2, m + 1);
  const double size = rough_magnitude(v[0]) + rough_magnitude(v[1]) + rough_magnitude(v[2]);
  for (int k = 0; size > 0 && k < 3; ++k) v[k] /= size;
}

// A QR step of rows first to i, by reflections of three rows that go down.
void step(const Matrix& h, const Matrix& z, const Shifts& s, int64_t first, int64_t i, Scalar* sums) {
  Scalar v[3];
  int64_t m = i - 2;
  for (;; --m) {
    start(h, s, m, v);
    if (m == first) break;
    const double size =
        rough_magnitude(h(m - 1, m - 1)) + rough_magnitude(h(m, m)) + rough_magnitude(h(m + 1, m + 1));
    const double rest = rough_magnitude(h(m, m - 1)) * (rough_magnitude(v[1]) + rough_magnitude(v[2]));
    if (rest <= kEps * rough_magnitude(v[0]) * size) break;
  }
  for (int64_t k = m; k < i; ++k) {
    const int64_t count = i - k + 1 < 3 ? i - k + 1 : 3;
    for (int64_t j = 0; k > m && j < count; ++j) v[j] = h(k + j, k - 1);
    const Matrix column = whole(v, count, 1);
    const Scalar tau = reflect(column, 0);
    for (int64_t j = 0; k > m && j < count; ++j) h(k + j, k - 1) = j == 0 ? v[0] : Scalar(0);
    if (k == m && m > first) h(k, k - 1) *= Scalar(1) - conjugate(tau);
    apply(column, 0, conjugate(tau), part(h, k, 0, count, h.n), k, sums);
    apply_right(column, tau, part(h, 0, k, smaller(k + 4, i + 1), count));
    apply_right(column, tau, part(z, 0, k, z.m, count));
  }
}

// h, of Hessenberg's form, made a triangle but for blocks of two rows, z with it. False where that does not end.
bool make_blocks(const Matrix& h, const Matrix& z, Scalar* sums) {
  int64_t turn = 0;
  for (int64_t i = h.n - 1; i > 0;) {
    const int64_t first = block_of(h, i);
    if (first > 0) h(first, first - 1) = 0;
    if (first + 1 >= i) {
      i = first - 1;
      turn = 0;
    } else if (turn++ < kMostSweeps) {
      step(h, z, shifts_of(h, i, turn - 1), first, i, sums);
    } else {
      return false;
    }
  }
  return true;
}

// Rows and columns k and k + 1 of t, and columns of z, turned until t(k + 1, k) is 0.
void split(const MatrixOf<Complex>& t, const MatrixOf<Complex>& z, int64_t k, const Complex& first,
           const Complex& second) {
  Complex x = first - t(k + 1, k + 1), y = t(k + 1, k);
  const double scale = magnitude(x) > magnitude(y) ? magnitude(x) : magnitude(y);
  const double size = scale * root(square(x / scale) + square(y / scale));
  x /= size;
  y /= size;
  const MatrixOf<Complex>* const both[] = {&t, &z};
  for (const MatrixOf<Complex>* a : both)
    for (int64_t i = 0; i < a->m; ++i) {
      const Complex left = (*a)(i, k), right = (*a)(i, k + 1);
      (*a)(i, k) = left * x + right * y;
      (*a)(i, k + 1) = right * conjugate(x) - left * conjugate(y);
    }
  for (int64_t j = 0; j < t.n; ++j) {
    const Complex above = t(k, j), below = t(k + 1, j);
    t(k, j) = above * conjugate(x) + below * conjugate(y);
    t(k + 1, j) = below * x - above * y;
  }
  t(k, k) = first;
  t(k + 1, k + 1) = second;
  t(k + 1, k) = 0;
}

// The blocks of h made triangles: t and z of complex numbers, of which a real matrix has pairs of conjugates.
void make_triangle(const Matrix& h, const Matrix& z, const MatrixOf<Complex>& t, const MatrixOf<Complex>& turned) {
  for (int64_t i = 0; i < h.n * h.n; ++i) {
    t.at[i] = h.at[i];
    turned.at[i] = z.at[i];
  }
  for (int64_t k = 0; k + 1 < h.n; ++k) {
    if (h(k + 1, k) == 0) continue;
    const Shifts s = {h(k, k), h(k + 1, k + 1), h(k, k + 1) * h(k + 1, k)};
    bool found;
    const Scalar apart = half_apart(s, &found);
    if (found) {
      split(t, turned, k, s.d + apart, apart == 0 ? s.d : s.d - s.product / apart);
    } else {
      const double p = real_part((s.a - s.d) / 2), imaginary = root(-real_part(p * p + s.product));
      const double middle = real_part(s.d) + p;
      split(t, turned, k, {middle, imaginary}, {middle, -imaginary});
    }
  }
}

// x of (t - t(k, k)) x = 0, x(k) = 1, made smaller where it would become too large. Denominators are not below `least`.
void solve_for_vector(const MatrixOf<Complex>& t, int64_t k, double least, Complex* x) {
  for (int64_t i = 0; i < t.n; ++i) x[i] = i == k ? 1 : 0;
  for (int64_t i = k - 1; i >= 0; --i) {
    Complex sum = 0, below = t(i, i) - t(k, k);
    for (int64_t j = i + 1; j <= k; ++j) sum += t(i, j) * x[j];
    if (!(magnitude(below) > least)) below = least;
    x[i] = -sum / below;
    const double size = magnitude(x[i]);
    for (int64_t j = i; size > 0x1p100 && j <= k; ++j) x[j] /= size;
  }
}

// The length made 1 and the largest element real, as LAPACK has them. real: of a real eigenvalue of a real matrix, whose
// vector is all real, of either sign.
void normalise(Complex* v, int64_t n, bool real) {
  double most = 0, sum = 0;
  Complex largest = 1;
  for (int64_t i = 0; i < n; ++i)
    if (magnitude(v[i]) > most) most = magnitude(v[i]), largest = v[i];
  const Complex factor = conjugate(largest / most) * (real && largest.re < 0 ? -1 / most : 1 / most);
  for (int64_t i = 0; i < n; ++i) {
    v[i] = real ? Complex((v[i] * factor).re) : v[i] * factor;
    sum += square(v[i]);
  }
  for (int64_t i = 0; i < n; ++i) v[i] /= root(sum);
}

}  // namespace

// linalg_eig(A) -> eigenvalues and eigenvectors in columns, complex both. What is not finite, or comes to no end, makes
// all of them NaN.
int32_t ht_linalg_eig(const ht_kernel_call* call) {
  const ht_tensor &a = given(call, 0), &values = call->results[0], &vectors = call->results[1];
  const int64_t n = rows_of(a);
  each(call, batch_of(a), [&](int64_t k, Scalar* work) {
    const Matrix h = whole(work, n, n), z = whole(h.at + n * n, n, n);
    Complex* others = reinterpret_cast<Complex*>(z.at + n * n);
    const MatrixOf<Complex> t = {others, n, n, n, 1}, turned = {others + n * n, n, n, n, 1};
    Complex *x = others + 2 * n * n, *v = x + n;
    double* scales = reinterpret_cast<double*>(v + n);
    load(a, k, h);
    const double most = size_of(h), unit = unit_for(most);
    for (int64_t i = 0; i < n * n; ++i) h.at[i] *= unit;
    bool done = most == most;
    if (done) {
      balance(h, scales);
      make_hessenberg(h, z, reinterpret_cast<Scalar*>(x));
      done = make_blocks(h, z, reinterpret_cast<Scalar*>(x));
    }
    if (!done) {
      const double nothing = __builtin_nan("");
      for (int64_t i = 0; i < n; ++i) put_complex(values, k * n + i, {nothing, nothing});
      for (int64_t i = 0; i < n * n; ++i) put_complex(vectors, k * n * n + i, {nothing, nothing});
      return;
    }
    make_triangle(h, z, t, turned);
    double size = kTiny;
    for (int64_t i = 0; i < n * n; ++i) size = magnitude(t.at[i]) > size ? magnitude(t.at[i]) : size;
    for (int64_t j = 0; j < n; ++j) {
      const Complex value = t(j, j);
      put_complex(values, k * n + j, value / unit);
      const bool of_pair = !kPairs && value.im < 0;  // the conjugate of the one in front
      if (!of_pair) {
        solve_for_vector(t, j, kEps * size, x);
        for (int64_t i = 0; i < n; ++i) {
          v[i] = 0;
          for (int64_t at = 0; at <= j; ++at) v[i] += turned(i, at) * x[at];
          v[i] *= scales[i];
        }
        normalise(v, n, !kPairs && value.im == 0);
      }
      for (int64_t i = 0; i < n; ++i) put_complex(vectors, (k * n + i) * n + j, of_pair ? conjugate(v[i]) : v[i]);
    }
  });
  return 0;
}
