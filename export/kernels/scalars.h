// The numbers of kernels of matrices: Scalar is double, or, where HT_COMPLEX is defined, a complex number of doubles.
// What both have is written once for both; conjugates, phases and imaginary parts of real numbers are trivial.
#include <hardtack/kernel.h>

namespace {

constexpr double kEps = 0x1p-52;

double root(double x) { return __builtin_sqrt(x); }
double magnitude(double x) { return __builtin_fabs(x); }

struct Complex {
  double re, im;
  Complex() = default;
  Complex(double real, double imaginary = 0) : re(real), im(imaginary) {}
};

Complex operator-(const Complex& a) { return {-a.re, -a.im}; }
Complex operator+(const Complex& a, const Complex& b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(const Complex& a, const Complex& b) { return {a.re - b.re, a.im - b.im}; }
Complex operator*(const Complex& a, const Complex& b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Complex operator*(const Complex& a, double b) { return {a.re * b, a.im * b}; }
Complex operator*(double a, const Complex& b) { return {a * b.re, a * b.im}; }
Complex operator/(const Complex& a, double b) { return {a.re / b, a.im / b}; }

// Both divided by the larger part of b before, whose square may be too large or too small for a number.
Complex operator/(const Complex& a, const Complex& b) {
  if (b.im == 0) return a / b.re;
  const double scale = magnitude(b.re) > magnitude(b.im) ? magnitude(b.re) : magnitude(b.im);
  const Complex x = a / scale, y = b / scale;
  const double square = y.re * y.re + y.im * y.im;
  return {(x.re * y.re + x.im * y.im) / square, (x.im * y.re - x.re * y.im) / square};
}

Complex& operator+=(Complex& a, const Complex& b) { return a = a + b; }
Complex& operator-=(Complex& a, const Complex& b) { return a = a - b; }
template <typename T>
Complex& operator*=(Complex& a, const T& b) { return a = a * b; }
template <typename T>
Complex& operator/=(Complex& a, const T& b) { return a = a / b; }
bool operator==(const Complex& a, const Complex& b) { return a.re == b.re && a.im == b.im; }
bool operator!=(const Complex& a, const Complex& b) { return !(a == b); }

// Without overflow; NaN where a part is.
double magnitude(const Complex& z) {
  const double x = magnitude(z.re), y = magnitude(z.im), most = x > y ? x : y, least = x > y ? y : x;
  if (most == 0 || most == __builtin_inf()) return most + least;
  return most * root(1 + (least / most) * (least / most));
}

// The root with a real part that is not negative. has_root: whether there is one among numbers of the type.
Complex root(const Complex& z) {
  const double half = root(magnitude(z) / 2 + magnitude(z.re) / 2);
  if (half == 0) return 0;
  const double other = magnitude(z.im) / (2 * half), x = z.re >= 0 ? half : other, y = z.re >= 0 ? other : half;
  return {x, z.im >= 0 ? y : -y};
}
bool has_root(double x) { return x >= 0; }
bool has_root(const Complex&) { return true; }

double real_part(double x) { return x; }
double real_part(const Complex& z) { return z.re; }
double imaginary_part(double) { return 0; }
double imaginary_part(const Complex& z) { return z.im; }
double conjugate(double x) { return x; }
Complex conjugate(const Complex& z) { return {z.re, -z.im}; }
double square(double x) { return x * x; }
double square(const Complex& z) { return z.re * z.re + z.im * z.im; }

// That of the larger part, which is a number where z is one.
double part_magnitude(double x) { return magnitude(x); }
double part_magnitude(const Complex& z) { return magnitude(z.re) > magnitude(z.im) ? magnitude(z.re) : magnitude(z.im); }

// By which LAPACK compares elements: |re| + |im|.
double rough_magnitude(double x) { return magnitude(x); }
double rough_magnitude(const Complex& z) { return magnitude(z.re) + magnitude(z.im); }

// A number of magnitude 1 whose conjugate makes z real: 1 for what is real already.
double phase(double) { return 1; }
Complex phase(const Complex& z) {
  if (z.im == 0) return 1;
  const Complex part = z / part_magnitude(z);
  return part / magnitude(part);
}

#ifdef HT_COMPLEX
using Scalar = Complex;
constexpr int32_t kPairs = 1;  // dimensions behind a tensor's own: its complex numbers are pairs
#else
using Scalar = double;
constexpr int32_t kPairs = 0;
#endif

double real_element(const ht_tensor& t, int64_t i) {
  return t.dtype.bits == 64 ? static_cast<const double*>(t.data)[i] : static_cast<const float*>(t.data)[i];
}

void put_real(const ht_tensor& t, int64_t i, double value) {
  if (t.dtype.bits == 64) {
    static_cast<double*>(t.data)[i] = value;
  } else {
    static_cast<float*>(t.data)[i] = static_cast<float>(value);
  }
}

void put_complex(const ht_tensor& t, int64_t i, const Complex& value) {
  put_real(t, 2 * i, value.re);
  put_real(t, 2 * i + 1, value.im);
}

#ifdef HT_COMPLEX
Scalar element(const ht_tensor& t, int64_t i) { return {real_element(t, 2 * i), real_element(t, 2 * i + 1)}; }
void put(const ht_tensor& t, int64_t i, const Scalar& value) { put_complex(t, i, value); }
#else
Scalar element(const ht_tensor& t, int64_t i) { return real_element(t, i); }
void put(const ht_tensor& t, int64_t i, Scalar value) { put_real(t, i, value); }
#endif

}  // namespace
