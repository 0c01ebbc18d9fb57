// Running sums and products, sorting, and factorising small matrices.
#include <numeric>

#include "walk.h"

namespace simgpu {
namespace {

template <class T, bool PRODUCT>
struct Scan {
  KERNEL_NAME(PRODUCT ? "Cumprod" : "Cumsum")
  bool exclusive, reverse;
  explicit Scan(Attrs& a) : exclusive(a.flag("exclusive")), reverse(a.flag("reverse")) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out<T>(0, x.dims);
    Around a(x.dims, c.host_dims(1).at(0));
    if (!out.count) return;
    c.run(x.count, 2. * x.count * sizeof(T), [=, exclusive = exclusive, reverse = reverse] {
      for (int64_t row = 0; row < a.outer * a.inner; row++) {
        int64_t base = row / a.inner * a.n * a.inner + row % a.inner;
        typename Arithmetic<T>::type sum = PRODUCT;
        for (int64_t k = 0; k < a.n; k++) {
          int64_t at = base + (reverse ? a.n - 1 - k : k) * a.inner;
          auto v = x.as<T>()[at];
          if (exclusive) out.as<T>()[at] = T(sum);
          sum = PRODUCT ? sum * v : sum + v;
          if (!exclusive) out.as<T>()[at] = T(sum);
        }
      }
    });
  }
};

template <class T, class I>
struct TopK {
  KERNEL_NAME("TopKV2")
  explicit TopK(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    int64_t k = c.host_dims(1).at(0), n = x.dims.back();
    Dims d = x.dims;
    d.back() = k;
    Tensor values = c.out<T>(0, d), indices = c.out<I>(1, d);
    if (!values.count) return;
    c.run(x.count * 10., x.count * sizeof(T), [=] {
      std::vector<int64_t> order(n);
      for (int64_t row = 0; row < x.count / n; row++) {
        const T* p = x.as<T>() + row * n;
        std::iota(order.begin(), order.end(), 0);
        // Equal values: the lower index first.
        std::stable_sort(order.begin(), order.end(), [p](int64_t a, int64_t b) { return p[a] > p[b]; });
        for (int64_t i = 0; i < k; i++)
          values.as<T>()[row * k + i] = p[order[i]], indices.as<I>()[row * k + i] = (I)order[i];
      }
    });
  }
};

template <class I>
struct InTopK {
  KERNEL_NAME("InTopKV2")
  explicit InTopK(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), targets = c.in(1), k = c.in(2), out = c.out<bool>(0, targets.dims);
    if (!out.count) return;
    int64_t n = x.dims[1];
    c.run(x.count, 4. * x.count, [=] {
      for (int64_t row = 0; row < out.count; row++) {
        const float* p = x.as<float>() + row * n;
        int64_t target = targets.as<I>()[row], above = 0;
        bool good = target >= 0 && target < n && std::isfinite(p[target]);
        for (int64_t i = 0; good && i < n; i++) {
          if (!std::isfinite(p[i]))
            good = false;
          else
            above += p[i] > p[target];
        }
        out.as<bool>()[row] = good && above < *k.as<I>();
      }
    });
  }
};

// Householder's QR, in double: Keras makes orthogonal initial weights of it.
struct Qr {
  KERNEL_NAME("Qr")
  bool full;
  explicit Qr(Attrs& a) : full(a.flag("full_matrices")) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    int64_t m = x.dims[x.rank() - 2], n = x.dims.back(), p = full ? m : std::min(m, n);
    Dims dq(x.dims.begin(), x.dims.end() - 2), dr = dq;
    int64_t batch = product(dq);
    dq.push_back(m), dq.push_back(p), dr.push_back(p), dr.push_back(n);
    Tensor q = c.out<float>(0, dq), r = c.out<float>(1, dr);
    if (!q.count) return;
    c.run(4. * batch * m * n * p, 4. * (x.count + q.count + r.count), [=] {
      for (int64_t b = 0; b < batch; b++) {
        std::vector<double> R(x.as<float>() + b * m * n, x.as<float>() + (b + 1) * m * n), Q(m * m, 0);
        for (int64_t i = 0; i < m; i++) Q[i * m + i] = 1;
        for (int64_t k = 0; k < std::min(m - 1, n); k++) {
          double norm = 0;
          for (int64_t i = k; i < m; i++) norm += R[i * n + k] * R[i * n + k];
          if (norm == 0) continue;
          std::vector<double> v(m, 0);
          for (int64_t i = k; i < m; i++) v[i] = R[i * n + k];
          v[k] += copysign(sqrt(norm), v[k]);
          double vv = 0;
          for (auto t : v) vv += t * t;
          auto reflect = [&](std::vector<double>& a, int64_t columns) {
            for (int64_t j = 0; j < columns; j++) {
              double s = 0;
              for (int64_t i = k; i < m; i++) s += v[i] * a[i * columns + j];
              for (int64_t i = k; i < m; i++) a[i * columns + j] -= 2 * s / vv * v[i];
            }
          };
          reflect(R, n), reflect(Q, m);
        }
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < p; j++) q.as<float>()[(b * m + i) * p + j] = (float)Q[j * m + i];
        for (int64_t i = 0; i < p; i++)
          for (int64_t j = 0; j < n; j++) r.as<float>()[(b * p + i) * n + j] = i <= j ? (float)R[i * n + j] : 0;
      }
    });
  }
};

}  // namespace

void register_scans() {
  for_types<float, double, half, bf16, int64_t>([](auto t) {
    typedef decltype(t) T;
    for (auto i : kIndexTypes) {
      Types types = {{"T", TypeOf<T>::value}, {"Tidx", i}};
      reg<Scan<T, false>>("Cumsum", types, {"axis"}), reg<Scan<T, true>>("Cumprod", types, {"axis"});
    }
    for (auto k : kIndexTypes) {
      Types types = {{"T", TypeOf<T>::value}, {"Tk", k}, {"index_type", TF_INT32}};
      reg<TopK<T, int32_t>>("TopKV2", types, {"k"});
      types[2].second = TF_INT64;
      reg<TopK<T, int64_t>>("TopKV2", types, {"k"});
    }
  });
  reg<InTopK<int32_t>>("InTopKV2", {{"T", TF_INT32}}), reg<InTopK<int64_t>>("InTopKV2", {{"T", TF_INT64}});
  reg<Qr>("Qr", {{"T", TF_FLOAT}});
}

}  // namespace simgpu
