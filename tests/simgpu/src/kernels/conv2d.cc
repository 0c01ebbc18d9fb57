// Convolutions over images; depthwise ones, too.
#include "conv.h"

namespace simgpu {
namespace {

// Every channel has its own filters: [height, width, channels, outputs per channel].
struct Depthwise {
  WindowAttrs window;
  explicit Depthwise(Attrs& a) : window(a, 2, true, true) {}

  Window over(const Dims& input, const Dims& filter) const {
    int64_t kernel[3] = {1, filter[0], filter[1]};
    return window.over(input, kernel, filter[2] * filter[3]);
  }
  // Calls f(place in the output, in the filter, in the input) for every product.
  template <class F>
  static void each(const Window& w, int64_t per_channel, F f) {
    for (int64_t i = 0; i < w.batch; i++)
      w.each(i, [&](int64_t out, int64_t cell, int64_t in) {
        if (in < 0) return;
        for (int64_t c = 0; c < w.channels; c++)
          for (int64_t m = 0; m < per_channel; m++) {
            int64_t o = c * per_channel + m;
            f(out + o * w.out_strides[4], cell * w.channels * per_channel + o, in + c * w.in_strides[4]);
          }
      });
  }
  static double flops(const Window& w, int64_t per_channel) {
    return 2. * w.batch * w.positions() * w.cells() * w.channels * per_channel;
  }
};

struct DepthwiseConv : Depthwise {
  KERNEL_NAME("DepthwiseConv2dNative")
  using Depthwise::Depthwise;
  void run(Call& c) {
    Tensor x = c.in(0), filter = c.in(1);
    int64_t m = filter.dims[3];
    Window w = over(x.dims, filter.dims);
    Tensor y = c.out<float>(0, window.shape(w, w.channels * m));
    if (!y.count) return;
    c.run(flops(w, m), 4. * (x.count + filter.count + y.count), [=] {
      std::fill_n(y.as<float>(), y.count, 0.f);
      each(w, m,
           [=](int64_t o, int64_t f, int64_t i) { y.as<float>()[o] += x.as<float>()[i] * filter.as<float>()[f]; });
    });
  }
};

struct DepthwiseInputGrad : Depthwise {
  KERNEL_NAME("DepthwiseConv2dNativeBackpropInput")
  using Depthwise::Depthwise;
  void run(Call& c) {
    Dims d = c.host_dims(0);
    Tensor filter = c.in(1), dy = c.in(2), dx = c.out<float>(0, d);
    if (!dx.count) return;
    int64_t m = filter.dims[3];
    Window w = over(d, filter.dims);
    c.run(flops(w, m), 4. * (dx.count + filter.count + dy.count), [=] {
      std::fill_n(dx.as<float>(), dx.count, 0.f);
      each(w, m,
           [=](int64_t o, int64_t f, int64_t i) { dx.as<float>()[i] += dy.as<float>()[o] * filter.as<float>()[f]; });
    });
  }
};

struct DepthwiseFilterGrad : Depthwise {
  KERNEL_NAME("DepthwiseConv2dNativeBackpropFilter")
  using Depthwise::Depthwise;
  void run(Call& c) {
    Dims d = c.host_dims(1);
    Tensor x = c.in(0), dy = c.in(2), df = c.out<float>(0, d);
    if (!df.count) return;
    Window w = over(x.dims, d);
    c.run(flops(w, d[3]), 4. * (x.count + df.count + dy.count), [=] {
      std::fill_n(df.as<float>(), df.count, 0.f);
      each(w, d[3],
           [=](int64_t o, int64_t f, int64_t i) { df.as<float>()[f] += dy.as<float>()[o] * x.as<float>()[i]; });
    });
  }
};

}  // namespace

void register_convolutions() {
  reg_floats<Conv<2, false>>("Conv2D"), reg<Conv<2, true>>("_FusedConv2D", {{"T", TF_FLOAT}});
  reg<ViaFloat<Conv<2, true>>>("_FusedConv2D", {{"T", TF_HALF}});
  reg_floats<ConvInputGrad<2>>("Conv2DBackpropInput", {"input_sizes"});
  reg_floats<ConvFilterGrad<2>>("Conv2DBackpropFilter", {"filter_sizes"});
  reg_floats<DepthwiseConv>("DepthwiseConv2dNative");
  reg_floats<DepthwiseInputGrad>("DepthwiseConv2dNativeBackpropInput", {"input_sizes"});
  reg_floats<DepthwiseFilterGrad>("DepthwiseConv2dNativeBackpropFilter", {"filter_sizes"});
}

}  // namespace simgpu
