// Reductions over axes, and sums of several tensors.
#include <limits>

#include "walk.h"

namespace simgpu {
namespace {

// Floats are summed in double, so that the result does not depend on the order as much as the CPU's does.
template <class T>
struct Accumulator {
  typedef typename std::conditional<std::is_integral<T>::value, int64_t, double>::type type;
};

struct Sum {
  KERNEL_NAME("Sum")
  template <class A, class T>
  static A init() {
    return 0;
  }
  template <class A>
  static A add(A a, A b) {
    return a + b;
  }
};
struct Mean : Sum {
  KERNEL_NAME("Mean")
};
struct Prod {
  KERNEL_NAME("Prod")
  template <class A, class T>
  static A init() {
    return 1;
  }
  template <class A>
  static A add(A a, A b) {
    return a * b;
  }
};
struct Max {
  KERNEL_NAME("Max")
  template <class A, class T>
  static A init() {
    return std::is_integral<T>::value ? A(std::numeric_limits<T>::lowest()) : A(-INFINITY);
  }
  template <class A>
  static A add(A a, A b) {
    return a > b ? a : b;
  }
};
struct Min {
  KERNEL_NAME("Min")
  template <class A, class T>
  static A init() {
    return std::is_integral<T>::value ? A(std::numeric_limits<T>::max()) : A(INFINITY);
  }
  template <class A>
  static A add(A a, A b) {
    return a < b ? a : b;
  }
};
struct All {
  KERNEL_NAME("All")
  template <class A, class T>
  static A init() {
    return 1;
  }
  template <class A>
  static A add(A a, A b) {
    return a && b;
  }
};
struct Any {
  KERNEL_NAME("Any")
  template <class A, class T>
  static A init() {
    return 0;
  }
  template <class A>
  static A add(A a, A b) {
    return a || b;
  }
};
struct EuclideanNorm : Sum {
  KERNEL_NAME("EuclideanNorm")
};

template <class R, class T>
struct Reduce {
  KERNEL_NAME(R::name())
  bool keep;
  explicit Reduce(Attrs& a) : keep(a.flag("keep_dims")) {}
  void run(Call& c) {
    typedef typename Accumulator<T>::type A;
    Tensor x = c.in(0);
    std::vector<bool> reduced(x.dims.size(), false);
    for (auto axis : c.host_dims(1)) {
      if (axis < -x.rank() || axis >= x.rank()) return c.fail("axis " + std::to_string(axis) + " of " + text(x.dims));
      reduced[axis < 0 ? axis + x.rank() : axis] = true;
    }
    Dims d, full = x.dims;
    for (int i = 0; i < x.rank(); i++) {
      if (reduced[i]) full[i] = 1;
      if (!reduced[i] || keep) d.push_back(full[i]);
    }
    Tensor out = c.out<T>(0, d);
    if (!out.count) return;
    c.run(x.count, x.count * sizeof(T), [=] {
      std::vector<A> sums(out.count, R::template init<A, T>());
      Dims strides = broadcast_strides(full, x.dims);
      int64_t step = x.dims.empty() ? 0 : strides.back();
      constexpr bool norm = std::is_same<R, EuclideanNorm>::value, mean = std::is_same<R, Mean>::value;
      each_row<1>(x.dims, &strides, [&](int64_t at, const int64_t* offset, int64_t n) {
        for (int64_t i = 0; i < n; i++) {
          A& sum = sums[offset[0] + i * step];
          A v = (A)x.as<T>()[at + i];
          sum = R::add(sum, norm ? A(v * v) : v);
        }
      });
      for (int64_t i = 0; i < out.count; i++) {
        A v = sums[i];
        if (mean) v = x.count ? A(v / A(x.count / out.count)) : A(std::is_integral<T>::value ? 0 : NAN);
        out.as<T>()[i] = T(norm ? A(sqrt(double(v))) : v);
      }
    });
  }
};

template <class T, class I, bool MIN>
struct ArgReduce {
  KERNEL_NAME(MIN ? "ArgMin" : "ArgMax")
  explicit ArgReduce(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Around a(x.dims, c.host_dims(1).at(0));
    Dims d = x.dims;
    d.erase(d.begin() + a.axis);
    Tensor out = c.out<I>(0, d);
    if (!out.count) return;
    c.run(x.count, x.count * sizeof(T), [=] {
      for (int64_t i = 0; i < out.count; i++) {
        const T* p = x.as<T>() + i / a.inner * a.n * a.inner + i % a.inner;
        int64_t best = 0;
        for (int64_t k = 1; k < a.n; k++) {
          auto v = p[k * a.inner], b = p[best * a.inner];
          if (MIN ? v < b : v > b) best = k;
        }
        out.as<I>()[i] = (I)best;
      }
    });
  }
};

template <class T>
struct AddN {
  KERNEL_NAME("AddN")
  explicit AddN(Attrs&) {}
  void run(Call& c) {
    std::vector<Tensor> list = c.in_range(0, c.inputs());
    Tensor out = c.out<T>(0, list[0].dims);
    if (!out.count) return;
    c.run(out.count * list.size(), out.count * sizeof(T) * (list.size() + 1), [list, out] {
      for (int64_t i = 0; i < out.count; i++) {
        typename Arithmetic<T>::type sum = 0;
        for (auto& t : list) sum += t.template as<T>()[i];
        out.as<T>()[i] = T(sum);
      }
    });
  }
};

template <class R, class... T>
void reg_reduction() {
  for_types<T...>([](auto t) {
    typedef decltype(t) U;
    for (auto i : kIndexTypes)
      reg<Reduce<R, U>>(R::name(), {{"T", TypeOf<U>::value}, {"Tidx", i}}, {"reduction_indices"});
  });
}
template <class R>
void reg_bool_reduction() {
  for (auto i : kIndexTypes) reg<Reduce<R, bool>>(R::name(), {{"Tidx", i}}, {"reduction_indices"});
}
template <class R>
void reg_host_reduction() {
  for (auto i : kIndexTypes) {
    reg<OnHost<Reduce<R, int32_t>>>(R::name(), {{"T", TF_INT32}, {"Tidx", i}},
                                    {"input", "reduction_indices", "output"});
  }
}

template <class T>
void reg_arg() {
  for (auto i : kIndexTypes) {
    Types t64 = {{"T", TypeOf<T>::value}, {"Tidx", i}, {"output_type", TF_INT64}};
    Types t32 = {{"T", TypeOf<T>::value}, {"Tidx", i}, {"output_type", TF_INT32}};
    reg<ArgReduce<T, int64_t, false>>("ArgMax", t64, {"dimension"});
    reg<ArgReduce<T, int32_t, false>>("ArgMax", t32, {"dimension"});
    reg<ArgReduce<T, int64_t, true>>("ArgMin", t64, {"dimension"});
    reg<ArgReduce<T, int32_t, true>>("ArgMin", t32, {"dimension"});
  }
}

}  // namespace

void register_reductions() {
  reg_reduction<Sum, float, double, half, bf16, int64_t>(), reg_reduction<Mean, float, double, half, bf16, int64_t>();
  reg_reduction<Max, float, double, half, bf16, int64_t>(), reg_reduction<Min, float, double, half, bf16, int64_t>();
  reg_reduction<Prod, float, double, half, bf16, int64_t>(), reg_reduction<EuclideanNorm, float, double>();
  reg_bool_reduction<All>(), reg_bool_reduction<Any>();
  reg_host_reduction<Sum>(), reg_host_reduction<Prod>(), reg_host_reduction<Mean>();
  reg_host_reduction<Max>(), reg_host_reduction<Min>();
  reg_arg<float>(), reg_arg<double>(), reg_arg<half>(), reg_arg<bf16>(), reg_arg<int64_t>();
  for_types<float, double, half, bf16, int64_t>(
      [](auto t) { reg<AddN<decltype(t)>>("AddN", {{"T", TypeOf<decltype(t)>::value}}); });
}

}  // namespace simgpu
