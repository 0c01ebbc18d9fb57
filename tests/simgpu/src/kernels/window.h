// A sliding window over images or volumes, in any layout: what convolution and pooling share.
#pragma once
#include "walk.h"

namespace simgpu {

// Where batch, space and channels sit in a tensor. Images count as volumes of depth 1, so there is one set of loops.
struct Layout {
  int spatial;  // 2 or 3
  bool channels_first;
  Layout(int spatial, const std::string& format) : spatial(spatial), channels_first(format.compare(0, 2, "NC") == 0) {}
  int channel() const { return channels_first ? 1 : spatial + 1; }
  int space(int k) const { return k - (3 - spatial) + (channels_first ? 2 : 1); }  // of depth, height, width = 0, 1, 2
  template <class V>
  int64_t pick(const V& values, int k) const {  // for depth, height, width; 1 for a depth that is not there
    return k < 3 - spatial ? 1 : values[space(k)];
  }
  Dims shape(int64_t batch, const int64_t* space, int64_t channels) const {
    Dims d = {batch};
    if (channels_first) d.push_back(channels);
    for (int k = 3 - spatial; k < 3; k++) d.push_back(space[k]);
    if (!channels_first) d.push_back(channels);
    return d;
  }
};

struct Window {
  int64_t batch, channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
  int64_t in_strides[5], out_strides[5];  // of batch, depth, height, width, channel

  int64_t positions() const { return out[0] * out[1] * out[2]; }  // of the window in one image
  int64_t cells() const { return kernel[0] * kernel[1] * kernel[2]; }

  // Calls f(offset in the output, cell of the kernel, offset in the input) for channel 0 of one image; where a cell
  // lies in the padding the last is -1.
  template <class F>
  void each(int64_t image, F f) const {
    for (int64_t a = 0; a < out[0]; a++)
      for (int64_t b = 0; b < out[1]; b++)
        for (int64_t c = 0; c < out[2]; c++) {
          int64_t to = image * out_strides[0] + a * out_strides[1] + b * out_strides[2] + c * out_strides[3];
          int64_t cell = 0;
          for (int64_t p = 0; p < kernel[0]; p++)
            for (int64_t q = 0; q < kernel[1]; q++)
              for (int64_t r = 0; r < kernel[2]; r++, cell++) {
                int64_t x = a * stride[0] + p * dilation[0] - pad[0], y = b * stride[1] + q * dilation[1] - pad[1],
                        z = c * stride[2] + r * dilation[2] - pad[2];
                bool inside = x >= 0 && x < in[0] && y >= 0 && y < in[1] && z >= 0 && z < in[2];
                int64_t from = image * in_strides[0] + x * in_strides[1] + y * in_strides[2] + z * in_strides[3];
                f(to, cell, inside ? from : -1);
              }
        }
  }
};

class WindowAttrs {
  std::string padding_;
  Dims stride_, dilation_, explicit_;

 public:
  Layout layout;

  WindowAttrs(Attrs& a, int spatial, bool dilates, bool pads_explicitly) : layout(spatial, a.string("data_format")) {
    padding_ = a.string("padding"), stride_ = a.integers("strides");
    if (dilates) dilation_ = a.integers("dilations");
    if (pads_explicitly) explicit_ = a.integers("explicit_paddings");
  }

  // `kernel`: depth, height, width.
  Window over(const Dims& input, const int64_t* kernel, int64_t out_channels) const {
    Window w;
    w.batch = input[0], w.channels = input[layout.channel()];
    for (int k = 0; k < 3; k++) {
      w.in[k] = layout.pick(input, k), w.kernel[k] = kernel[k], w.stride[k] = layout.pick(stride_, k);
      w.dilation[k] = dilation_.empty() ? 1 : layout.pick(dilation_, k);
      int64_t reach = (kernel[k] - 1) * w.dilation[k] + 1, after = 0;
      w.pad[k] = 0;
      if (padding_ == "SAME") {
        w.out[k] = (w.in[k] + w.stride[k] - 1) / w.stride[k];
        w.pad[k] = std::max<int64_t>(0, (w.out[k] - 1) * w.stride[k] + reach - w.in[k]) / 2;
        continue;
      }
      if (padding_ == "EXPLICIT" && k >= 3 - layout.spatial) {
        w.pad[k] = explicit_[2 * layout.space(k)], after = explicit_[2 * layout.space(k) + 1];
      }
      w.out[k] = std::max<int64_t>(0, (w.in[k] + w.pad[k] + after - reach) / w.stride[k] + 1);
    }
    set_strides(w.in, w.channels, w.in_strides), set_strides(w.out, out_channels, w.out_strides);
    return w;
  }
  Dims shape(const Window& w, int64_t out_channels) const { return layout.shape(w.batch, w.out, out_channels); }

 private:
  void set_strides(const int64_t* space, int64_t channels, int64_t* s) const {
    bool first = layout.channels_first;
    s[4] = first ? space[0] * space[1] * space[2] : 1;
    s[3] = first ? 1 : channels;
    s[2] = s[3] * space[2], s[1] = s[2] * space[1];
    s[0] = channels * space[0] * space[1] * space[2];
  }
};

}  // namespace simgpu
