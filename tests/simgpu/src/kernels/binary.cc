// Elementwise functions of two tensors, with broadcasting.
#include "elementwise.h"

namespace simgpu {
namespace {

// Integers: never trap, the GPU does not; the CPU's kernels refuse to divide by zero before they get there.
template <class T>
T floor_div(T a, T b) {
  if constexpr (std::is_floating_point<T>::value)
    return floor(a / b);
  else if (b == 0)
    return T(-1);
  else
    return T(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}
template <class T>
T floor_mod(T a, T b) {
  if constexpr (std::is_floating_point<T>::value) {
    T r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  } else {
    return b == 0 ? T(-1) : T(a - b * floor_div(a, b));
  }
}
template <class T>
T truncate_div(T a, T b) {
  if constexpr (std::is_floating_point<T>::value)
    return trunc(a / b);
  else
    return b == 0 ? T(-1) : T(a / b);
}
template <class T>
T div(T a, T b) {  // what Python 2 understood by it
  if constexpr (std::is_floating_point<T>::value)
    return a / b;
  else
    return truncate_div(a, b);
}
template <class T>
T power(T a, T b) {
  if constexpr (std::is_floating_point<T>::value) {
    return pow(a, b);
  } else {
    T r = 1;
    for (; b > 0; b >>= 1, a = T(a * a))
      if (b & 1) r = T(r * a);
    return r;
  }
}

BINARY(Add, T(a + b))
BINARY(AddV2, T(a + b))
BINARY(Sub, T(a - b))
BINARY(Mul, T(a* b))
BINARY(RealDiv, T(a / b))
BINARY(Div, div(a, b))
BINARY(DivNoNan, b == 0 ? T(0) : T(a / b))
BINARY(MulNoNan, b == 0 ? T(0) : T(a * b))
BINARY(Maximum, a > b ? a : b)
BINARY(Minimum, a < b ? a : b)
BINARY(Pow, power(a, b))
BINARY(SquaredDifference, T((a - b) * (a - b)))
BINARY(FloorDiv, floor_div(a, b))
BINARY(FloorMod, floor_mod(a, b))
BINARY(TruncateDiv, truncate_div(a, b))
BINARY(Atan2, T(atan2(a, b)))
BINARY(Xdivy, a == 0 ? T(0) : T(a / b))
BINARY(Xlogy, a == 0 ? T(0) : T(a * log(b)))
BINARY(Xlog1py, a == 0 ? T(0) : T(a * log1p(b)))
BINARY(Equal, a == b)
BINARY(NotEqual, a != b)
BINARY(Less, a < b)
BINARY(LessEqual, a <= b)
BINARY(Greater, a > b)
BINARY(GreaterEqual, a >= b)
BINARY(LogicalAnd, a&& b)
BINARY(LogicalOr, a || b)
BINARY(BitwiseAnd, T(a& b))
BINARY(BitwiseOr, T(a | b))
BINARY(BitwiseXor, T(a ^ b))
BINARY(LeftShift, T(a << b))
BINARY(RightShift, T(a >> b))
// Gradients from the output and its gradient, ...
BINARY(SigmoidGrad, T(b * a * (1 - a)))
BINARY(TanhGrad, T(b * (1 - a * a)))
BINARY(SqrtGrad, T(b* T(0.5) / a))
BINARY(RsqrtGrad, T(b* T(-0.5) * a * a * a))
BINARY(ReciprocalGrad, T(-b * a * a))
BINARY(InvGrad, T(-b * a * a))
// ... and from the gradient and the input (for Elu and Selu: the output).
BINARY(ReluGrad, b > 0 ? a : T(0))
BINARY(Relu6Grad, b > 0 && b < 6 ? a : T(0))
BINARY(EluGrad, b > 0 ? a : T((b + 1) * a))
BINARY(SeluGrad, b < 0 ? T(a * (b + T(1.7580993408473768))) : T(a * T(1.0507009873554805)))
BINARY(SoftplusGrad, T(a / (exp(-b) + 1)))
BINARY(SoftsignGrad, T(a / ((1 + fabs(b)) * (1 + fabs(b)))))

struct LeakyReluGrad {
  KERNEL_NAME("LeakyReluGrad")
  float alpha;
  explicit LeakyReluGrad(Attrs& a) : alpha(a.number("alpha")) {}
  void run(Call& c) {
    Tensor dy = c.in(0), x = c.in(1), out = c.out<float>(0, dy.dims);
    if (!out.count) return;
    c.run(out.count, 12. * out.count, [=, alpha = alpha] {
      for (int64_t i = 0; i < out.count; i++)
        out.as<float>()[i] = dy.as<float>()[i] * (x.as<float>()[i] > 0 ? 1 : alpha);
    });
  }
};

template <class... T>
void reg_arithmetic() {
  reg_binary<AddV2_, T...>(), reg_binary<Sub_, T...>(), reg_binary<Mul_, T...>();
  reg_binary<Maximum_, T...>(), reg_binary<Minimum_, T...>();
  reg_comparison<Less_, T...>(), reg_comparison<LessEqual_, T...>();
  reg_comparison<Greater_, T...>(), reg_comparison<GreaterEqual_, T...>();
  reg_comparison<Equal_, T...>(), reg_comparison<NotEqual_, T...>();
}

template <class... T>
void reg_real() {
  reg_binary<RealDiv_, T...>(), reg_binary<Div_, T...>(), reg_binary<DivNoNan_, T...>(), reg_binary<MulNoNan_, T...>();
  reg_binary<Pow_, T...>(), reg_binary<SquaredDifference_, T...>(), reg_binary<FloorDiv_, T...>();
  reg_binary<FloorMod_, T...>(), reg_binary<Xdivy_, T...>();
  reg_binary<ReluGrad_, T...>(), reg_binary<SigmoidGrad_, T...>(), reg_binary<TanhGrad_, T...>();
  reg_binary<SqrtGrad_, T...>(), reg_binary<RsqrtGrad_, T...>(), reg_binary<ReciprocalGrad_, T...>();
  reg_binary<InvGrad_, T...>(), reg_binary<EluGrad_, T...>(), reg_binary<SeluGrad_, T...>();
  reg_binary<Relu6Grad_, T...>(), reg_binary<SoftplusGrad_, T...>(), reg_binary<SoftsignGrad_, T...>();
  reg_binary<Atan2_, T...>(), reg_binary<Xlogy_, T...>(), reg_binary<Xlog1py_, T...>();
}

}  // namespace

void register_binary() {
  reg_arithmetic<FLOATS, int64_t, SMALL_INTS>();
  reg_binary<Add_, FLOATS, int64_t>();
  reg_real<FLOATS>();
  reg_comparison<Equal_, bool>(), reg_comparison<NotEqual_, bool>();
  reg_binary<Pow_, int64_t>(), reg_binary<SquaredDifference_, int64_t>(), reg_binary<Div_, int64_t>();
  reg_binary<FloorDiv_, int64_t>(), reg_binary<FloorMod_, int64_t>(), reg_binary<TruncateDiv_, int64_t>();
  reg<Binary<LogicalAnd_, bool, bool>>("LogicalAnd", {});
  reg<Binary<LogicalOr_, bool, bool>>("LogicalOr", {});
  reg_binary<BitwiseAnd_, int64_t, int32_t, SMALL_INTS>(), reg_binary<BitwiseOr_, int64_t, int32_t, SMALL_INTS>();
  reg_binary<BitwiseXor_, int64_t, int32_t, SMALL_INTS>();
  reg_binary<LeftShift_, int64_t, int32_t, SMALL_INTS>(), reg_binary<RightShift_, int64_t, int32_t, SMALL_INTS>();
  reg<LeakyReluGrad>("LeakyReluGrad", {{"T", TF_FLOAT}});
  reg<ViaFloat<LeakyReluGrad>>("LeakyReluGrad", {{"T", TF_HALF}});
  reg<ViaFloat<LeakyReluGrad>>("LeakyReluGrad", {{"T", TF_BFLOAT16}});
}

}  // namespace simgpu
