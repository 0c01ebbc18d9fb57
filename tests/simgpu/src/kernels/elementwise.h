// Elementwise functions: a struct with a name and a template operator(), and what makes kernels of them.
#pragma once
#include "walk.h"

namespace simgpu {

#define BINARY(NAME, EXPRESSION)      \
  struct NAME##_ {                    \
    KERNEL_NAME(#NAME)                \
    template <class T>                \
    auto operator()(T a, T b) const { \
      return EXPRESSION;              \
    }                                 \
  };
#define UNARY(NAME, EXPRESSION)  \
  struct NAME##_ {               \
    KERNEL_NAME(#NAME)           \
    template <class T>           \
    auto operator()(T a) const { \
      return EXPRESSION;         \
    }                            \
  };

template <class F, class A, class B>
void apply_binary(const Tensor& a, const Tensor& b, const Tensor& out) {
  typedef typename Arithmetic<A>::type C;
  F f;
  const A *x = a.as<A>(), *y = b.as<A>();
  B* z = out.as<B>();
  if (a.dims == b.dims) {
    for (int64_t i = 0; i < out.count; i++) z[i] = B(f(C(x[i]), C(y[i])));
    return;
  }
  Dims strides[2] = {broadcast_strides(a.dims, out.dims), broadcast_strides(b.dims, out.dims)};
  int64_t sx = strides[0].empty() ? 0 : strides[0].back(), sy = strides[1].empty() ? 0 : strides[1].back();
  each_row<2>(out.dims, strides, [&](int64_t at, const int64_t* offset, int64_t n) {
    for (int64_t i = 0; i < n; i++) z[at + i] = B(f(C(x[offset[0] + i * sx]), C(y[offset[1] + i * sy])));
  });
}

template <class F, class A, class B>
struct Binary {
  KERNEL_NAME(F::name())
  explicit Binary(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), b = c.in(1);
    Dims d;
    if (!broadcast(a.dims, b.dims, d)) return c.fail("incompatible shapes " + text(a.dims) + " and " + text(b.dims));
    Tensor out = c.out<B>(0, d);
    if (!out.count) return;
    double bytes = (a.count + b.count) * sizeof(A) + out.count * sizeof(B);
    c.run(out.count, bytes, [a, b, out] { apply_binary<F, A, B>(a, b, out); });
  }
};

template <class F, class A, class B>
struct Unary {
  KERNEL_NAME(F::name())
  explicit Unary(Attrs&) {}
  void run(Call& c) {
    typedef typename Arithmetic<A>::type C;
    Tensor a = c.in(0), out = c.out<B>(0, a.dims);
    if (!out.count) return;
    c.run(4. * out.count, a.count * sizeof(A) + out.count * sizeof(B), [a, out] {
      F f;
      const A* x = a.as<A>();
      B* y = out.as<B>();
      for (int64_t i = 0; i < out.count; i++) y[i] = B(f(C(x[i])));
    });
  }
};

template <class F, class... T>
void reg_binary() {
  for_types<T...>(
      [](auto t) { reg<Binary<F, decltype(t), decltype(t)>>(F::name(), {{"T", TypeOf<decltype(t)>::value}}); });
}
template <class F, class... T>
void reg_comparison() {
  for_types<T...>([](auto t) { reg<Binary<F, decltype(t), bool>>(F::name(), {{"T", TypeOf<decltype(t)>::value}}); });
}
template <class F, class... T>
void reg_unary() {
  for_types<T...>(
      [](auto t) { reg<Unary<F, decltype(t), decltype(t)>>(F::name(), {{"T", TypeOf<decltype(t)>::value}}); });
}
template <class F, class... T>
void reg_test() {
  for_types<T...>([](auto t) { reg<Unary<F, decltype(t), bool>>(F::name(), {{"T", TypeOf<decltype(t)>::value}}); });
}
#define FLOATS float, double, half, bf16
#define SMALL_INTS int8_t, int16_t, uint8_t, uint16_t, uint32_t, uint64_t

}  // namespace simgpu
