// Pooling over images and volumes.
#include "gemm.h"
#include "window.h"

namespace simgpu {
namespace {

template <int SPATIAL>
struct PoolWindow {
  WindowAttrs window;
  Dims kernel;
  PoolWindow(Attrs& a, bool pads_explicitly)
      : window(a, SPATIAL, false, pads_explicitly), kernel(a.integers("ksize")) {}
  Window over(const Dims& input) const {
    int64_t k[3];
    for (int i = 0; i < 3; i++) k[i] = window.layout.pick(kernel, i);
    return window.over(input, k, input[window.layout.channel()]);
  }
  // Calls f(place in the output, places in the input, their number) for every position and channel.
  template <class F>
  static void each(const Window& w, F f) {
    std::vector<int64_t> at(w.cells()), shifted(w.cells());
    int n = 0;
    for (int64_t i = 0; i < w.batch; i++)
      w.each(i, [&](int64_t out, int64_t cell, int64_t in) {
        if (cell == 0) n = 0;
        if (in >= 0) at[n++] = in;
        if (cell + 1 < w.cells()) return;
        for (int64_t c = 0; c < w.channels; c++) {
          for (int k = 0; k < n; k++) shifted[k] = at[k] + c * w.in_strides[4];
          f(out + c * w.out_strides[4], shifted.data(), n);
        }
      });
  }
  static double work(const Window& w) { return 1. * w.batch * w.positions() * w.channels * w.cells(); }
};

int highest(const float* x, const int64_t* cells, int n) {
  int best = 0;
  for (int k = 1; k < n; k++)
    if (x[cells[k]] > x[cells[best]]) best = k;
  return best;
}

template <int SPATIAL, bool AVERAGE>
struct Pool : PoolWindow<SPATIAL> {
  typedef PoolWindow<SPATIAL> Base;
  KERNEL_NAME(AVERAGE ? (SPATIAL == 2 ? "AvgPool" : "AvgPool3D") : (SPATIAL == 2 ? "MaxPool" : "MaxPool3D"))
  explicit Pool(Attrs& a) : Base(a, SPATIAL == 2 && !AVERAGE) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Window w = this->over(x.dims);
    Tensor y = c.out<float>(0, this->window.shape(w, w.channels));
    if (!y.count) return;
    c.run(Base::work(w), 4. * (x.count + y.count), [=] {
      const float* from = x.as<float>();
      Base::each(w, [=](int64_t out, const int64_t* cells, int n) {
        float v = 0;
        if (AVERAGE)
          for (int k = 0; k < n; k++) v += from[cells[k]] / n;  // padding does not count
        else
          v = n ? from[cells[highest(from, cells, n)]] : -INFINITY;
        y.as<float>()[out] = v;
      });
    });
  }
};

template <int SPATIAL>
struct MaxPoolGrad : PoolWindow<SPATIAL> {
  typedef PoolWindow<SPATIAL> Base;
  KERNEL_NAME(SPATIAL == 2 ? "MaxPoolGrad" : "MaxPool3DGrad")
  explicit MaxPoolGrad(Attrs& a) : Base(a, SPATIAL == 2) {}
  void run(Call& c) {
    Tensor x = c.in(0), dy = c.in(2), dx = c.out<float>(0, x.dims);
    if (!x.count) return;
    Window w = this->over(x.dims);
    c.run(Base::work(w), 8. * (x.count + dy.count), [=] {
      std::fill_n(dx.as<float>(), dx.count, 0.f);
      Base::each(w, [=](int64_t out, const int64_t* cells, int n) {
        if (n) dx.as<float>()[cells[highest(x.as<float>(), cells, n)]] += dy.as<float>()[out];
      });
    });
  }
};

template <int SPATIAL>
struct AvgPoolGrad : PoolWindow<SPATIAL> {
  typedef PoolWindow<SPATIAL> Base;
  KERNEL_NAME(SPATIAL == 2 ? "AvgPoolGrad" : "AvgPool3DGrad")
  explicit AvgPoolGrad(Attrs& a) : Base(a, false) {}
  void run(Call& c) {
    Dims d = c.host_dims(0);
    Tensor dy = c.in(1), dx = c.out<float>(0, d);
    if (!dx.count) return;
    Window w = this->over(d);
    c.run(Base::work(w), 4. * (dx.count + dy.count), [=] {
      std::fill_n(dx.as<float>(), dx.count, 0.f);
      Base::each(w, [=](int64_t out, const int64_t* cells, int n) {
        for (int k = 0; k < n; k++) dx.as<float>()[cells[k]] += dy.as<float>()[out] / n;
      });
    });
  }
};

}  // namespace

void register_pooling() {
  reg_floats<Pool<2, false>>("MaxPool"), reg_floats<Pool<2, true>>("AvgPool");
  reg_floats<Pool<3, false>>("MaxPool3D"), reg_floats<Pool<3, true>>("AvgPool3D");
  reg_floats<MaxPoolGrad<2>>("MaxPoolGrad"), reg_floats<AvgPoolGrad<2>>("AvgPoolGrad", {"orig_input_shape"});
  reg_floats<MaxPoolGrad<3>>("MaxPool3DGrad"), reg_floats<AvgPoolGrad<3>>("AvgPool3DGrad", {"orig_input_shape"});
}

}  // namespace simgpu
