// Resizing and warping images, and colours.
#include "walk.h"

namespace simgpu {
namespace {

// How a resize reads: where on an axis of the input each place of the output lies.
struct Scale {
  bool align_corners, half_pixel;
  explicit Scale(Attrs& a) : align_corners(a.flag("align_corners")), half_pixel(a.flag("half_pixel_centers")) {}
  float ratio(int64_t in, int64_t out) const {
    return align_corners && out > 1 ? (in - 1) / (float)(out - 1) : in / (float)out;
  }
  struct Point {
    int64_t low, high;
    float share;  // of `high`
  };
  Point bilinear(int64_t i, int64_t in, int64_t out) const {
    float at = half_pixel ? (i + 0.5f) * ratio(in, out) - 0.5f : i * ratio(in, out), down = floorf(at);
    return {std::max<int64_t>((int64_t)down, 0), std::min<int64_t>((int64_t)ceilf(at), in - 1), at - down};
  }
  int64_t nearest(int64_t i, int64_t in, int64_t out) const {
    float at = (half_pixel ? i + 0.5f : (float)i) * ratio(in, out);
    int64_t k = (int64_t)(align_corners ? roundf(at) : floorf(at));
    return std::max<int64_t>(0, std::min(k, in - 1));
  }
};

// Calls f(place in the resized tensor, four places in the original, their weights) for every element.
template <class F>
void each_bilinear(const Scale& scale, const Dims& small, const Dims& big, F f) {
  int64_t C = small[3];
  for (int64_t b = 0, to = 0; b < big[0]; b++)
    for (int64_t y = 0; y < big[1]; y++) {
      auto v = scale.bilinear(y, small[1], big[1]);
      for (int64_t x = 0; x < big[2]; x++) {
        auto h = scale.bilinear(x, small[2], big[2]);
        for (int64_t c = 0; c < C; c++, to++) {
          auto at = [&](int64_t row, int64_t column) { return ((b * small[1] + row) * small[2] + column) * C + c; };
          int64_t from[4] = {at(v.low, h.low), at(v.low, h.high), at(v.high, h.low), at(v.high, h.high)};
          float weight[4] = {(1 - v.share) * (1 - h.share), (1 - v.share) * h.share, v.share * (1 - h.share),
                             v.share * h.share};
          f(to, from, weight);
        }
      }
    }
}

template <class T>
struct ResizeBilinear : Scale {
  KERNEL_NAME("ResizeBilinear")
  using Scale::Scale;
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims size = c.host_dims(1);
    Tensor y = c.out<float>(0, {x.dims[0], size[0], size[1], x.dims[3]});
    if (!y.count) return;
    c.run(8. * y.count, 4. * y.count + sizeof(T) * x.count, [=, scale = Scale(*this)] {
      each_bilinear(scale, x.dims, y.dims, [&](int64_t to, const int64_t* from, const float* weight) {
        float v = 0;
        for (int k = 0; k < 4; k++) v += weight[k] * (float)x.as<T>()[from[k]];
        y.as<float>()[to] = v;
      });
    });
  }
};

template <class T>
struct ResizeBilinearGrad : Scale {
  KERNEL_NAME("ResizeBilinearGrad")
  using Scale::Scale;
  void run(Call& c) {
    Tensor dy = c.in(0), original = c.in(1), dx = c.out<T>(0, original.dims);
    if (!dx.count) return;
    c.run(8. * dy.count, 4. * dy.count + sizeof(T) * dx.count, [=, scale = Scale(*this)] {
      std::vector<float> sum(dx.count, 0);
      each_bilinear(scale, dx.dims, dy.dims, [&](int64_t from, const int64_t* to, const float* weight) {
        for (int k = 0; k < 4; k++) sum[to[k]] += weight[k] * dy.as<float>()[from];
      });
      for (int64_t i = 0; i < dx.count; i++) dx.as<T>()[i] = T(sum[i]);
    });
  }
};

// Calls f(place in the resized tensor, place in the original) for every pixel.
template <class F>
void each_nearest(const Scale& scale, const Dims& small, const Dims& big, F f) {
  for (int64_t b = 0; b < big[0]; b++)
    for (int64_t y = 0; y < big[1]; y++)
      for (int64_t x = 0; x < big[2]; x++) {
        int64_t row = scale.nearest(y, small[1], big[1]), column = scale.nearest(x, small[2], big[2]);
        f((b * big[1] + y) * big[2] + x, (b * small[1] + row) * small[2] + column);
      }
}

struct ResizeNearest : Scale {
  KERNEL_NAME("ResizeNearestNeighbor")
  using Scale::Scale;
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims size = c.host_dims(1);
    TF_DataType type = TF_TensorType(x.handle);
    Tensor y = c.out(0, type, {x.dims[0], size[0], size[1], x.dims[3]});
    if (!y.count) return;
    c.run(0, 2. * TF_TensorByteSize(y.handle), [=, scale = Scale(*this)] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        int64_t C = x.dims[3];
        each_nearest(scale, x.dims, y.dims,
                     [&](int64_t to, int64_t from) { std::copy_n(x.as<T>() + from * C, C, y.as<T>() + to * C); });
      });
    });
  }
};

template <class T>
struct ResizeNearestGrad : Scale {
  KERNEL_NAME("ResizeNearestNeighborGrad")
  using Scale::Scale;
  void run(Call& c) {
    Tensor dy = c.in(0);
    Dims size = c.host_dims(1);
    Tensor dx = c.out<T>(0, {dy.dims[0], size[0], size[1], dy.dims[3]});
    if (!dx.count) return;
    c.run(dy.count, sizeof(T) * (dx.count + dy.count), [=, scale = Scale(*this)] {
      typename Arithmetic<T>::type zero = 0;
      std::vector<decltype(zero)> sum(dx.count, zero);
      int64_t C = dx.dims[3];
      each_nearest(scale, dx.dims, dy.dims, [&](int64_t from, int64_t to) {
        for (int64_t k = 0; k < C; k++) sum[to * C + k] += dy.as<T>()[from * C + k];
      });
      for (int64_t i = 0; i < dx.count; i++) dx.as<T>()[i] = T(sum[i]);
    });
  }
};

// Reads an image through a projective transform: what Keras' random rotations, zooms and shifts are made of.
template <class T>
struct Projective {
  KERNEL_NAME("ImageProjectiveTransformV3")
  bool bilinear;
  std::string mode;
  explicit Projective(Attrs& a) : bilinear(a.string("interpolation") == "BILINEAR"), mode(a.string("fill_mode")) {}

  // The coordinate brought inside by the fill mode.
  static float inside(const std::string& mode, float at, int64_t n) {
    float len = (float)n;
    if (mode == "REFLECT") {
      float both = 2 * len;
      if (at < 0) {
        if (n <= 1) return 0;
        if (at < both) at = both * (int64_t)(-at / both) + at;
        at = at < -len ? at + both : -at - 1;
      } else if (at > len - 1) {
        if (n <= 1) return 0;
        at -= both * (int64_t)(at / both);
        if (at >= len) at = both - at - 1;
      }
    } else if (mode == "WRAP") {
      if (at < 0) {
        if (n <= 1) return 0;
        at += len * ((int64_t)(-at / (len - 1)) + 1);
      } else if (at > len - 1) {
        if (n <= 1) return 0;
        at -= len * (int64_t)(at / (len - 1));
      }
    } else if (mode != "NEAREST") {
      return at;  // CONSTANT: outside stays outside
    }
    return std::min(std::max(at, 0.f), len - 1);
  }

  void run(Call& c) {
    Tensor x = c.in(0), transforms = c.in(1);
    Dims size = c.host_dims(2);
    float fill = *c.in(3).as<float>();
    Tensor y = c.out<T>(0, {x.dims[0], size[0], size[1], x.dims[3]});
    if (!y.count) return;
    c.run(30. * y.count, sizeof(T) * (x.count + y.count), [=, mode = mode, bilinear = bilinear] {
      int64_t H = x.dims[1], W = x.dims[2], C = x.dims[3];
      auto read = [&](int64_t b, int64_t row, int64_t column, int64_t channel) -> float {
        bool in = row >= 0 && row < H && column >= 0 && column < W;
        return in ? (float)x.as<T>()[((b * H + row) * W + column) * C + channel] : fill;
      };
      for (int64_t i = 0; i < y.count; i++) {
        int64_t channel = i % C, ox = i / C % size[1], oy = i / (C * size[1]) % size[0],
                b = i / (C * size[1] * size[0]);
        const float* t = transforms.as<float>() + (transforms.dims[0] == 1 ? 0 : b * 8);
        float projection = t[6] * ox + t[7] * oy + 1;
        if (projection == 0) {
          y.as<T>()[i] = T(fill);
          continue;
        }
        float px = inside(mode, (t[0] * ox + t[1] * oy + t[2]) / projection, W);
        float py = inside(mode, (t[3] * ox + t[4] * oy + t[5]) / projection, H);
        if (!bilinear) {
          y.as<T>()[i] = T(read(b, (int64_t)roundf(py), (int64_t)roundf(px), channel));
          continue;
        }
        float x0 = floorf(px), y0 = floorf(py);
        auto row = [&](float r) {
          return (x0 + 1 - px) * read(b, (int64_t)r, (int64_t)x0, channel) +
                 (px - x0) * read(b, (int64_t)r, (int64_t)x0 + 1, channel);
        };
        y.as<T>()[i] = T((y0 + 1 - py) * row(y0) + (py - y0) * row(y0 + 1));
      }
    });
  }
};

struct AdjustContrast {
  KERNEL_NAME("AdjustContrastv2")
  explicit AdjustContrast(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), y = c.out<float>(0, x.dims);
    float factor = *c.in(1).as<float>();
    if (!y.count) return;
    c.run(3. * x.count, 12. * x.count, [=] {
      int64_t C = x.dims.back(), pixels = x.dims[x.rank() - 3] * x.dims[x.rank() - 2], n = pixels * C;
      for (int64_t image = 0; image < x.count; image += n)
        for (int64_t k = 0; k < C; k++) {
          const float* from = x.as<float>() + image + k;
          double mean = 0;
          for (int64_t i = 0; i < pixels; i++) mean += from[i * C];
          mean /= pixels;
          for (int64_t i = 0; i < pixels; i++)
            y.as<float>()[image + k + i * C] = (float)((from[i * C] - mean) * factor + mean);
        }
    });
  }
};

struct ToHsv {
  KERNEL_NAME("RGBToHSV")
  static void f(const float* rgb, float* hsv) {
    float r = rgb[0], g = rgb[1], b = rgb[2], high = std::max({r, g, b}), range = high - std::min({r, g, b});
    float h = 0;
    if (range > 0) {
      if (high == r)
        h = (g - b) / range / 6;
      else if (high == g)
        h = (b - r) / range / 6 + 2 / 6.f;
      else
        h = (r - g) / range / 6 + 4 / 6.f;
    }
    hsv[0] = h < 0 ? h + 1 : h, hsv[1] = high > 0 ? range / high : 0, hsv[2] = high;
  }
};
struct ToRgb {
  KERNEL_NAME("HSVToRGB")
  static void f(const float* hsv, float* rgb) {
    auto clip = [](float v) { return std::min(std::max(v, 0.f), 1.f); };
    float h = hsv[0] * 6, s = hsv[1], v = hsv[2];
    float d[3] = {clip(fabsf(h - 3) - 1), clip(2 - fabsf(h - 2)), clip(2 - fabsf(h - 4))};
    for (int k = 0; k < 3; k++) rgb[k] = (1 - s + s * d[k]) * v;
  }
};
template <class F>
struct Colours {
  KERNEL_NAME(F::name())
  explicit Colours(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), y = c.out<float>(0, x.dims);
    if (!y.count) return;
    c.run(10. * x.count, 8. * x.count, [=] {
      for (int64_t i = 0; i < x.count; i += 3) F::f(x.as<float>() + i, y.as<float>() + i);
    });
  }
};

}  // namespace

void register_images() {
  for_types<float, half, bf16, uint8_t>([](auto t) {
    typedef decltype(t) T;
    reg<ResizeBilinear<T>>("ResizeBilinear", {{"T", TypeOf<T>::value}}, {"size"});
  });
  for_types<float, half, bf16>([](auto t) {
    typedef decltype(t) T;
    reg<ResizeBilinearGrad<T>>("ResizeBilinearGrad", {{"T", TypeOf<T>::value}});
  });
  for_types<float, half, bf16>([](auto t) {
    typedef decltype(t) T;
    reg<ResizeNearestGrad<T>>("ResizeNearestNeighborGrad", {{"T", TypeOf<T>::value}}, {"size"});
  });
  for (auto type : {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_UINT8})
    reg<ResizeNearest>("ResizeNearestNeighbor", {{"T", type}}, {"size"});
  for_types<float, half, bf16, uint8_t>([](auto t) {
    typedef decltype(t) T;
    reg<Projective<T>>("ImageProjectiveTransformV3", {{"dtype", TypeOf<T>::value}}, {"output_shape", "fill_value"});
  });
  reg<AdjustContrast>("AdjustContrastv2", {{"T", TF_FLOAT}}, {"contrast_factor"});
  reg<Colours<ToHsv>>("RGBToHSV", {{"T", TF_FLOAT}}), reg<Colours<ToRgb>>("HSVToRGB", {{"T", TF_FLOAT}});
}

}  // namespace simgpu
