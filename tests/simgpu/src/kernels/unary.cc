// Elementwise functions of one tensor.
#include "elementwise.h"

namespace simgpu {
namespace {

// After Numerical Recipes: the asymptotic series, reached by recurrence.
template <class T>
T digamma(T x) {
  double v = x, r = 0;
  if (v <= 0) {
    if (v == floor(v)) return T(NAN);
    return T(digamma(1 - v) - M_PI / tan(M_PI * v));
  }
  for (; v < 10; v++) r -= 1 / v;
  double f = 1 / (v * v);
  return T(r + log(v) - 0.5 / v - f * (1. / 12 - f * (1. / 120 - f * (1. / 252 - f * (1. / 240 - f / 132)))));
}

// The inverse of erf: a rough start (Giles, 2010), then Newton's method in double.
template <class T>
T erf_inverse(T x) {
  double y = x;
  if (!(y > -1 && y < 1)) return y == 1 ? T(INFINITY) : y == -1 ? T(-INFINITY) : T(NAN);
  double w = -log((1 - y) * (1 + y)), s = sqrt(w);
  double r = w < 5 ? (0.886226899 + w * (0.0154701 + 0.0049 * w)) * y : copysign(sqrt(w - 0.5 * log(M_PI * w)), y);
  for (int i = 0; i < 40 && s >= 0; i++) {
    double e = (erf(r) - y) / (M_2_SQRTPI * exp(-r * r));
    r -= e / (1 + r * e);  // Halley's correction keeps the tails from overshooting
    if (fabs(e) < 1e-15 * fabs(r)) break;
  }
  return T(r);
}

UNARY(Neg, T(-a))
UNARY(Abs, a < 0 ? T(-a) : a)
UNARY(Sign, T((a > 0) - (a < 0)))
UNARY(Square, T(a* a))
UNARY(OnesLike, (void(a), T(1)))
UNARY(Sqrt, T(sqrt(a)))
UNARY(Rsqrt, T(1 / sqrt(a)))
UNARY(Exp, T(exp(a)))
UNARY(Expm1, T(expm1(a)))
UNARY(Log, T(log(a)))
UNARY(Log1p, T(log1p(a)))
UNARY(Reciprocal, T(1 / a))
UNARY(Inv, T(1 / a))
UNARY(Sigmoid, T(1 / (1 + exp(-a))))
UNARY(Tanh, T(tanh(a)))
UNARY(Sin, T(sin(a)))
UNARY(Cos, T(cos(a)))
UNARY(Tan, T(tan(a)))
UNARY(Asin, T(asin(a)))
UNARY(Acos, T(acos(a)))
UNARY(Atan, T(atan(a)))
UNARY(Sinh, T(sinh(a)))
UNARY(Cosh, T(cosh(a)))
UNARY(Asinh, T(asinh(a)))
UNARY(Acosh, T(acosh(a)))
UNARY(Atanh, T(atanh(a)))
UNARY(Floor, T(floor(a)))
UNARY(Ceil, T(ceil(a)))
UNARY(Round, T(nearbyint(a)))
UNARY(Rint, T(nearbyint(a)))
UNARY(Erf, T(erf(a)))
UNARY(Erfc, T(erfc(a)))
UNARY(Erfinv, erf_inverse(a))
UNARY(Lgamma, T(lgamma(a)))
UNARY(Digamma, digamma(a))
UNARY(Relu, a > 0 ? a : T(0))
UNARY(Relu6, a < 0 ? T(0) : a > 6 ? T(6) : a)
UNARY(Elu, a > 0 ? a : T(expm1(a)))
UNARY(Selu, T(1.0507009873554805) * (a > 0 ? a : T(T(1.6732632423543772) * expm1(a))))
UNARY(Softplus, T((a > 0 ? a : T(0)) + log1p(exp(a > 0 ? -a : a))))
UNARY(Softsign, T(a / (1 + fabs(a))))
UNARY(IsFinite, bool(std::isfinite(a)))
UNARY(IsInf, bool(std::isinf(a)))
UNARY(IsNan, bool(std::isnan(a)))
UNARY(LogicalNot, !a)
UNARY(Invert, T(~a))

struct LeakyRelu {
  KERNEL_NAME("LeakyRelu")
  float alpha;
  explicit LeakyRelu(Attrs& a) : alpha(a.number("alpha")) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out<float>(0, x.dims);
    if (!out.count) return;
    c.run(out.count, 8. * out.count, [=, alpha = alpha] {
      for (int64_t i = 0; i < out.count; i++) {
        float v = x.as<float>()[i];
        out.as<float>()[i] = v > 0 ? v : alpha * v;
      }
    });
  }
};

// A GPU build of TensorFlow fetches the verdict to the host and raises; this one passes the values on.
struct CheckNumerics {
  KERNEL_NAME("CheckNumerics")
  explicit CheckNumerics(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out_like(0, x);
    size_t bytes = TF_TensorByteSize(x.handle);
    if (out.count) c.run(x.count, 2. * bytes, [=] { memcpy(out.data, x.data, bytes); });
  }
};

template <class... T>
void reg_real() {
  reg_unary<Sqrt_, T...>(), reg_unary<Rsqrt_, T...>(), reg_unary<Exp_, T...>(), reg_unary<Expm1_, T...>();
  reg_unary<Log_, T...>(), reg_unary<Log1p_, T...>(), reg_unary<Reciprocal_, T...>(), reg_unary<Inv_, T...>();
  reg_unary<Sigmoid_, T...>(), reg_unary<Tanh_, T...>(), reg_unary<Sin_, T...>(), reg_unary<Cos_, T...>();
  reg_unary<Tan_, T...>(), reg_unary<Asin_, T...>(), reg_unary<Acos_, T...>(), reg_unary<Atan_, T...>();
  reg_unary<Sinh_, T...>(), reg_unary<Cosh_, T...>(), reg_unary<Asinh_, T...>(), reg_unary<Acosh_, T...>();
  reg_unary<Atanh_, T...>(), reg_unary<Floor_, T...>(), reg_unary<Ceil_, T...>(), reg_unary<Rint_, T...>();
  reg_unary<Round_, T...>(), reg_unary<Erf_, T...>(), reg_unary<Erfc_, T...>(), reg_unary<Lgamma_, T...>();
  reg_unary<Digamma_, T...>(), reg_unary<Relu_, T...>(), reg_unary<Relu6_, T...>(), reg_unary<Elu_, T...>();
  reg_unary<Selu_, T...>(), reg_unary<Softplus_, T...>(), reg_unary<Softsign_, T...>();
  reg_test<IsFinite_, T...>(), reg_test<IsInf_, T...>(), reg_test<IsNan_, T...>();
}

}  // namespace

void register_unary() {
  reg_unary<Neg_, FLOATS, int64_t>(), reg_unary<Abs_, FLOATS, int64_t>(), reg_unary<Sign_, FLOATS, int64_t>();
  reg_unary<Square_, FLOATS, int64_t>(), reg_unary<OnesLike_, FLOATS, int64_t, bool>();
  reg_real<FLOATS>();
  reg_unary<Erfinv_, float, double>();
  reg_unary<Invert_, int64_t, int32_t, SMALL_INTS>();
  reg<Unary<LogicalNot_, bool, bool>>("LogicalNot", {});
  reg<LeakyRelu>("LeakyRelu", {{"T", TF_FLOAT}});
  reg<ViaFloat<LeakyRelu>>("LeakyRelu", {{"T", TF_HALF}});
  reg<ViaFloat<LeakyRelu>>("LeakyRelu", {{"T", TF_BFLOAT16}});
  for (auto t : {TF_FLOAT, TF_DOUBLE, TF_HALF, TF_BFLOAT16})
    for (auto op : {"CheckNumerics", "CheckNumericsV2"}) reg<CheckNumerics>(op, {{"T", t}});
}

}  // namespace simgpu
