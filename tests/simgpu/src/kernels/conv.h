// Convolutions over images (SPATIAL = 2) and volumes (3): patches as a matrix, and a matrix product.
#pragma once
#include "gemm.h"
#include "window.h"

namespace simgpu {

template <int SPATIAL>
struct Convolution {
  WindowAttrs window;
  explicit Convolution(Attrs& a) : window(a, SPATIAL, true, SPATIAL == 2) {}

  // One convolution: how it slides, its filter as [cells * channels of a group, output channels], its groups.
  struct Plan {
    Window w;
    int64_t outputs, groups, per_group;  // output channels; groups; input channels of a group
    int64_t rows() const { return w.positions(); }
    int64_t depth() const { return w.cells() * per_group; }
    int64_t columns() const { return outputs / groups; }
    double flops() const { return 2. * w.batch * rows() * depth() * outputs; }
    Dims sizes() const { return {per_group, columns()}; }
  };
  Plan plan(const Dims& input, const Dims& filter) const {
    int64_t kernel[3] = {1, 1, 1};
    for (int k = 0; k < SPATIAL; k++) kernel[k + 3 - SPATIAL] = filter[k];
    Plan p;
    p.per_group = filter[SPATIAL], p.outputs = filter[SPATIAL + 1];
    p.w = window.over(input, kernel, p.outputs);
    p.groups = p.per_group ? p.w.channels / p.per_group : 0;
    return p;
  }
  static bool fits(Call& c, const Plan& p) {
    bool good = p.groups > 0 && p.groups * p.per_group == p.w.channels && p.outputs % p.groups == 0;
    if (!good) c.fail("filter and input differ in channels");
    return good;
  }

  // Patches of one image and group as a matrix [rows, depth], ...
  static void patches(const Plan& p, const float* x, int64_t image, int64_t group, float* matrix) {
    x += group * p.per_group * p.w.in_strides[4];
    p.w.each(image, [&](int64_t, int64_t, int64_t from) {
      for (int64_t c = 0; c < p.per_group; c++) *matrix++ = from < 0 ? 0 : x[from + c * p.w.in_strides[4]];
    });
  }
  // ... and added back to where they came from.
  static void add_patches(const Plan& p, float* x, int64_t image, int64_t group, const float* matrix) {
    x += group * p.per_group * p.w.in_strides[4];
    p.w.each(image, [&](int64_t, int64_t, int64_t to) {
      for (int64_t c = 0; c < p.per_group; c++, matrix++)
        if (to >= 0) x[to + c * p.w.in_strides[4]] += *matrix;
    });
  }
  // The output's channels of one image and group, as a matrix [rows, columns]: calls f(element, place in the matrix).
  template <class T, class F>
  static void outputs(const Plan& p, T* y, int64_t image, int64_t group, F f) {
    const int64_t* s = p.w.out_strides;
    int64_t at = 0;
    for (int64_t a = 0; a < p.w.out[0]; a++)
      for (int64_t b = 0; b < p.w.out[1]; b++)
        for (int64_t c = 0; c < p.w.out[2]; c++)
          for (int64_t o = group * p.columns(); o < (group + 1) * p.columns(); o++)
            f(y[image * s[0] + a * s[1] + b * s[2] + c * s[3] + o * s[4]], at++);
  }
  // The filter of one group, as a matrix [depth, columns]: calls f(element, place in the matrix).
  template <class T, class F>
  static void filters(const Plan& p, T* filter, int64_t group, F f) {
    int64_t at = 0;
    for (int64_t k = 0; k < p.depth(); k++)
      for (int64_t o = group * p.columns(); o < (group + 1) * p.columns(); o++) f(filter[k * p.outputs + o], at++);
  }
};

template <int SPATIAL, bool FUSED>
struct Conv : Convolution<SPATIAL> {
  typedef Convolution<SPATIAL> Base;
  KERNEL_NAME(FUSED ? "_FusedConv2D" : SPATIAL == 2 ? "Conv2D" : "Conv3D")
  Epilogue epilogue;
  explicit Conv(Attrs& a) : Base(a) {
    if (FUSED) epilogue.read(a);
  }
  void run(Call& c) {
    if (FUSED && !epilogue.known()) return c.fail("fused operation " + epilogue.activation);
    Tensor x = c.in(0), filter = c.in(1), bias = FUSED ? c.in(2) : Tensor();
    auto p = this->plan(x.dims, filter.dims);
    if (!Base::fits(c, p)) return;
    Tensor y = c.out<float>(0, this->window.shape(p.w, p.outputs));
    if (!y.count) return;
    c.multiply(p.flops(), 4. * (x.count + filter.count + y.count), p.sizes(), [=, epilogue = epilogue] {
      std::vector<float> matrix(p.rows() * p.depth()), f(p.depth() * p.columns()), result(p.rows() * p.columns());
      for (int64_t g = 0; g < p.groups; g++) {
        Base::filters(p, filter.as<float>(), g, [&](float v, int64_t at) { f[at] = v; });
        for (int64_t i = 0; i < p.w.batch; i++) {
          Base::patches(p, x.as<float>(), i, g, matrix.data());
          gemm(matrix.data(), f.data(), result.data(), p.rows(), p.columns(), p.depth(), false, false);
          if (FUSED) epilogue.apply(result.data(), bias.as<float>() + g * p.columns(), p.rows(), p.columns());
          Base::outputs(p, y.as<float>(), i, g, [&](float& v, int64_t at) { v = result[at]; });
        }
      }
    });
  }
};

template <int SPATIAL>
struct ConvInputGrad : Convolution<SPATIAL> {
  typedef Convolution<SPATIAL> Base;
  KERNEL_NAME(SPATIAL == 2 ? "Conv2DBackpropInput" : "Conv3DBackpropInputV2")
  using Base::Base;
  void run(Call& c) {
    Dims d = c.host_dims(0);
    Tensor filter = c.in(1), dy = c.in(2);
    auto p = this->plan(d, filter.dims);
    if (!Base::fits(c, p)) return;
    Tensor dx = c.out<float>(0, d);
    if (!dx.count) return;
    c.multiply(p.flops(), 4. * (dx.count + filter.count + dy.count), p.sizes(), [=] {
      std::vector<float> matrix(p.rows() * p.depth()), f(p.depth() * p.columns()), grad(p.rows() * p.columns());
      std::fill_n(dx.as<float>(), dx.count, 0.f);
      for (int64_t g = 0; g < p.groups; g++) {
        Base::filters(p, filter.as<float>(), g, [&](float v, int64_t at) { f[at] = v; });
        for (int64_t i = 0; i < p.w.batch; i++) {
          Base::outputs(p, dy.as<float>(), i, g, [&](float v, int64_t at) { grad[at] = v; });
          gemm(grad.data(), f.data(), matrix.data(), p.rows(), p.depth(), p.columns(), false, true);
          Base::add_patches(p, dx.as<float>(), i, g, matrix.data());
        }
      }
    });
  }
};

template <int SPATIAL>
struct ConvFilterGrad : Convolution<SPATIAL> {
  typedef Convolution<SPATIAL> Base;
  KERNEL_NAME(SPATIAL == 2 ? "Conv2DBackpropFilter" : "Conv3DBackpropFilterV2")
  using Base::Base;
  void run(Call& c) {
    Tensor x = c.in(0), dy = c.in(2);
    Dims d = c.host_dims(1);
    auto p = this->plan(x.dims, d);
    if (!Base::fits(c, p)) return;
    Tensor df = c.out<float>(0, d);
    if (!df.count) return;
    c.multiply(p.flops(), 4. * (x.count + df.count + dy.count), p.sizes(), [=] {
      std::vector<float> matrix(p.rows() * p.depth()), sum(p.depth() * p.columns()), grad(p.rows() * p.columns());
      for (int64_t g = 0; g < p.groups; g++) {
        std::fill(sum.begin(), sum.end(), 0.f);
        for (int64_t i = 0; i < p.w.batch; i++) {
          Base::patches(p, x.as<float>(), i, g, matrix.data());
          Base::outputs(p, dy.as<float>(), i, g, [&](float v, int64_t at) { grad[at] = v; });
          gemm(matrix.data(), grad.data(), sum.data(), p.depth(), p.columns(), p.rows(), true, false, true);
        }
        Base::filters(p, df.as<float>(), g, [&](float& v, int64_t at) { v = sum[at]; });
      }
    });
  }
};

}  // namespace simgpu
