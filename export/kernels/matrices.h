// What kernels of matrices share. They compute in double whatever the tensors are, and round once at the end: one code
// for both types, with errors of f32 that are those of its inputs.
namespace {

constexpr int kMostSweeps = 60;  // of rotations; a handful does, and whatever the input is, they end

// A matrix, or the transpose of one: elements rows * i + columns * j behind `at`.
template <typename T>
struct MatrixOf {
  T* at;
  int64_t m, n, row, column;
  T& operator()(int64_t i, int64_t j) const { return at[i * row + j * column]; }
};

using Matrix = MatrixOf<Scalar>;

Matrix whole(Scalar* at, int64_t m, int64_t n) { return {at, m, n, n, 1}; }
Matrix transposed(const Matrix& a) { return {a.at, a.n, a.m, a.column, a.row}; }

// Of tensors of Scalars.
int64_t rows_of(const ht_tensor& t) { return t.shape[t.ndim - kPairs - 2]; }
int64_t columns_of(const ht_tensor& t) { return t.shape[t.ndim - kPairs - 1]; }

// Matrices in a tensor.
int64_t batch_of(const ht_tensor& t) {
  int64_t n = 1;
  for (int32_t d = 0; d + kPairs + 2 < t.ndim; ++d) n *= t.shape[d];
  return n;
}

const ht_tensor& given(const ht_kernel_call* call, int32_t k) { return *call->arguments[k].value.tensor; }
bool flag(const ht_kernel_call* call, int32_t k) { return call->arguments[k].value.integer != 0; }

// The k-th matrix of a tensor, into memory.
void load(const ht_tensor& t, int64_t k, const Matrix& to) {
  for (int64_t i = 0; i < to.m; ++i)
    for (int64_t j = 0; j < to.n; ++j) to(i, j) = element(t, (k * to.m + i) * to.n + j);
}

// A matrix as the k-th of a tensor, which may have fewer rows and columns.
void store(const Matrix& a, const ht_tensor& t, int64_t k) {
  const int64_t m = rows_of(t), n = columns_of(t);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) put(t, (k * m + i) * n + j, a(i, j));
}

void make_identity(const Matrix& a) {
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t j = 0; j < a.n; ++j) a(i, j) = i == j ? 1 : 0;
}

void conjugate_all(const Matrix& a) {
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t j = 0; j < a.n; ++j) a(i, j) = conjugate(a(i, j));
}

// The largest magnitude of a part; NaN where there is a number that is not finite, of which comparisons know nothing.
double size_of(const Matrix& a) {
  double most = 0, nothing = 0;
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t j = 0; j < a.n; ++j) {
      nothing += magnitude(a(i, j) - a(i, j));
      most = part_magnitude(a(i, j)) > most ? part_magnitude(a(i, j)) : most;
    }
  return most + nothing;
}

// What numbers up to `most` are multiplied by, so that products of some of them are numbers: 1, but at the ends of the
// range.
double unit_for(double most) { return most > 0x1p300 ? 0x1p-800 : most < 0x1p-300 ? 0x1p800 : 1; }

// The k-th matrix of a tensor as `value` alone.
void fill(const ht_tensor& t, int64_t k, int64_t numel, double value) {
  for (int64_t i = 0; i < numel; ++i) put(t, k * numel + i, value);
}

// The places 0 to n - 1 in the order that before(i, j) says; of equal ones the first comes first.
template <typename Before>
void sort(int64_t n, int64_t* order, const Before& before) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t place = i;
    for (; place > 0 && before(i, order[place - 1]); --place) order[place] = order[place - 1];
    order[place] = i;
  }
}

Scalar* work_of(const ht_kernel_call* call, int32_t worker) {
  return reinterpret_cast<Scalar*>(static_cast<char*>(call->worker_workspace) + worker * call->worker_nbytes);
}

// body(k, work) for k in [0, n), with a worker's memory.
template <typename Body>
void each(const ht_kernel_call* call, int64_t n, const Body& body) {
  struct Closure {
    const ht_kernel_call* call;
    const Body* body;
  } closure = {call, &body};
  call->parallel->run(
      call->parallel->pool, n,
      [](void* given, int64_t k, int32_t worker) {
        const Closure& c = *static_cast<const Closure*>(given);
        (*c.body)(k, work_of(c.call, worker));
      },
      &closure);
}

}  // namespace
