// Ops that read or write at places that a tensor of indices names. As on a GPU, an index out of range raises nothing:
// reading gives zero, writing is left out.
#include <limits>

#include "walk.h"

namespace simgpu {
namespace {

template <class I>
struct Gather {
  KERNEL_NAME("GatherV2")
  int64_t batch_dims;
  explicit Gather(Attrs& a) : batch_dims(a.integer("batch_dims")) {}
  void run(Call& c) {
    Tensor x = c.in(0), index = c.in(1);
    int64_t axis = c.host_dims(2).at(0), b = batch_dims < 0 ? batch_dims + index.rank() : batch_dims;
    if (axis < 0) axis += x.rank();
    Dims d(x.dims.begin(), x.dims.begin() + axis);
    d.insert(d.end(), index.dims.begin() + b, index.dims.end());
    d.insert(d.end(), x.dims.begin() + axis + 1, x.dims.end());
    int64_t batch = product(Dims(x.dims.begin(), x.dims.begin() + b));
    int64_t outer = product(Dims(x.dims.begin() + b, x.dims.begin() + axis)), n = x.dims[axis];
    int64_t inner = product(Dims(x.dims.begin() + axis + 1, x.dims.end())), number = batch ? index.count / batch : 0;
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, 2. * TF_TensorByteSize(out.handle), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        T* to = out.as<T>();
        for (int64_t g = 0; g < batch; g++)
          for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < number; i++, to += inner) {
              int64_t k = index.as<I>()[g * number + i];
              if (k >= 0 && k < n)
                std::copy_n(x.as<T>() + ((g * outer + o) * n + k) * inner, inner, to);
              else
                std::fill_n(to, inner, T(0));
            }
      });
    });
  }
};

// Offsets of the slices that the last axis of `indices` names in a tensor of shape d, -1 where outside.
template <class I>
std::vector<int64_t> slices_at(const Tensor& indices, const Dims& d, int64_t inner) {
  int64_t depth = indices.dims.back();
  std::vector<int64_t> offsets(depth ? indices.count / depth
                                     : product(Dims(indices.dims.begin(), indices.dims.end() - 1)));
  for (size_t i = 0; i < offsets.size(); i++) {
    int64_t at = 0;
    for (int64_t k = 0; k < depth && at >= 0; k++) {
      int64_t v = indices.as<I>()[i * depth + k];
      at = v < 0 || v >= d[k] ? -1 : at * d[k] + v;
    }
    offsets[i] = at < 0 ? -1 : at * inner;
  }
  return offsets;
}

int64_t slice_size(const Tensor& indices, const Dims& d) {
  return product(Dims(d.begin() + indices.dims.back(), d.end()));
}

template <class I>
struct GatherNd {
  KERNEL_NAME("GatherNd")
  explicit GatherNd(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), indices = c.in(1);
    Dims d(indices.dims.begin(), indices.dims.end() - 1);
    d.insert(d.end(), x.dims.begin() + indices.dims.back(), x.dims.end());
    int64_t inner = slice_size(indices, x.dims);
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, 2. * TF_TensorByteSize(out.handle), [=] {
      auto offsets = slices_at<I>(indices, x.dims, inner);
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        for (size_t i = 0; i < offsets.size(); i++) {
          T* to = out.as<T>() + i * inner;
          if (offsets[i] >= 0)
            std::copy_n(x.as<T>() + offsets[i], inner, to);
          else
            std::fill_n(to, inner, T(0));
        }
      });
    });
  }
};

struct ScatterSet {
  KERNEL_NAME("TensorScatterUpdate")
  template <class T>
  static T f(T, T b) {
    return b;
  }
};
struct ScatterAdd {
  KERNEL_NAME("TensorScatterAdd")
  template <class T>
  static T f(T a, T b) {
    return T(a + b);
  }
};
struct ScatterSub {
  KERNEL_NAME("TensorScatterSub")
  template <class T>
  static T f(T a, T b) {
    return T(a - b);
  }
};
struct ScatterMax {
  KERNEL_NAME("TensorScatterMax")
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
struct ScatterMin {
  KERNEL_NAME("TensorScatterMin")
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};

template <class F, class T, class I>
void scatter(const Tensor& indices, const Tensor& updates, const Tensor& out, int64_t inner) {
  auto offsets = slices_at<I>(indices, out.dims, inner);
  for (size_t i = 0; i < offsets.size(); i++) {
    if (offsets[i] < 0) continue;
    T* to = out.as<T>() + offsets[i];
    for (int64_t k = 0; k < inner; k++) to[k] = F::template f<T>(to[k], updates.as<T>()[i * inner + k]);
  }
}

template <class F, class T, class I>
struct TensorScatter {
  KERNEL_NAME(F::name())
  explicit TensorScatter(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), indices = c.in(1), updates = c.in(2), out = c.out_like(0, x);
    int64_t inner = slice_size(indices, x.dims);
    if (!out.count) return;
    c.run(updates.count, (2. * x.count + updates.count) * sizeof(T), [=] {
      std::copy_n(x.as<T>(), x.count, out.as<T>());
      scatter<F, T, I>(indices, updates, out, inner);
    });
  }
};

template <class T, class I>
struct ScatterNd {
  KERNEL_NAME("ScatterNd")
  explicit ScatterNd(Attrs&) {}
  void run(Call& c) {
    Tensor indices = c.in(0), updates = c.in(1), out = c.out<T>(0, c.host_dims(2));
    if (!out.count) return;
    int64_t inner = slice_size(indices, out.dims);
    c.run(updates.count, (out.count + updates.count) * sizeof(T), [=] {
      std::fill_n(out.as<T>(), out.count, T(0));
      scatter<ScatterAdd, T, I>(indices, updates, out, inner);
    });
  }
};

struct SegmentSum {
  KERNEL_NAME("UnsortedSegmentSum")
  template <class T>
  static T init() {
    return T(0);
  }
  template <class T>
  static T f(T a, T b) {
    return T(a + b);
  }
};
struct SegmentProd {
  KERNEL_NAME("UnsortedSegmentProd")
  template <class T>
  static T init() {
    return T(1);
  }
  template <class T>
  static T f(T a, T b) {
    return T(a * b);
  }
};
struct SegmentMax {
  KERNEL_NAME("UnsortedSegmentMax")
  template <class T>
  static T init() {
    return lowest<T>();
  }
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
  template <class T>
  static T lowest() {
    if constexpr (std::is_same<T, half>::value)
      return T(-65504.f);
    else if constexpr (std::is_same<T, bf16>::value)
      return T(-3.3895314e38f);
    else
      return std::numeric_limits<T>::lowest();
  }
};
struct SegmentMin {
  KERNEL_NAME("UnsortedSegmentMin")
  template <class T>
  static T init() {
    if constexpr (std::is_floating_point<T>::value || std::is_integral<T>::value)
      return std::numeric_limits<T>::max();
    else
      return T(-(float)SegmentMax::lowest<T>());
  }
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};

template <class F, class T, class I>
struct Segment {
  KERNEL_NAME(F::name())
  explicit Segment(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), ids = c.in(1);
    int64_t n = c.host_dims(2).at(0), inner = product(Dims(x.dims.begin() + ids.rank(), x.dims.end()));
    Dims d = {n};
    d.insert(d.end(), x.dims.begin() + ids.rank(), x.dims.end());
    Tensor out = c.out<T>(0, d);
    if (!out.count) return;
    c.run(x.count, 2. * x.count * sizeof(T), [=] {
      std::fill_n(out.as<T>(), out.count, F::template init<T>());
      for (int64_t i = 0; i < ids.count; i++) {
        int64_t k = ids.as<I>()[i];
        if (k < 0 || k >= n) continue;
        for (int64_t j = 0; j < inner; j++) {
          T& to = out.as<T>()[k * inner + j];
          to = F::template f<T>(to, x.as<T>()[i * inner + j]);
        }
      }
    });
  }
};

template <class I>
struct OneHot {
  KERNEL_NAME("OneHot")
  int64_t axis;
  explicit OneHot(Attrs& a) : axis(a.integer("axis")) {}
  void run(Call& c) {
    Tensor index = c.in(0), on = c.in(2), off = c.in(3);
    int64_t depth = c.host_dims(1).at(0), at = axis < 0 ? index.rank() : axis;
    Dims d = index.dims;
    d.insert(d.begin() + at, depth);
    TF_DataType type = TF_TensorType(on.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    Around a(out.dims, at);
    c.run(0, TF_TensorByteSize(out.handle), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        for (int64_t i = 0; i < out.count; i++) {
          int64_t k = i / a.inner % depth, from = i / (a.inner * depth) * a.inner + i % a.inner;
          out.as<T>()[i] = (int64_t)index.as<I>()[from] == k ? *on.as<T>() : *off.as<T>();
        }
      });
    });
  }
};

template <class T>
struct Bucketize {
  KERNEL_NAME("Bucketize")
  std::vector<float> bounds;
  explicit Bucketize(Attrs& a) : bounds(a.numbers("boundaries")) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out<int32_t>(0, x.dims);
    if (!out.count) return;
    c.run(x.count, x.count * (sizeof(T) + 4.), [=, bounds = bounds] {
      for (int64_t i = 0; i < x.count; i++) {
        auto above = std::upper_bound(bounds.begin(), bounds.end(), x.as<T>()[i], [](T v, float b) { return v < b; });
        out.as<int32_t>()[i] = (int32_t)(above - bounds.begin());
      }
    });
  }
};

template <class T, class I>
struct Bincount {
  KERNEL_NAME("DenseBincount")
  bool binary;
  explicit Bincount(Attrs& a) : binary(a.flag("binary_output")) {}
  void run(Call& c) {
    Tensor x = c.in(0), weights = c.in(2);
    int64_t size = c.host_dims(1).at(0), rows = x.rank() == 2 ? x.dims[0] : 1, n = rows ? x.count / rows : 0;
    Tensor out = c.out<T>(0, x.rank() == 2 ? Dims{rows, size} : Dims{size});
    if (!out.count) return;
    c.run(x.count, 4. * (x.count + out.count), [=, binary = binary] {
      std::fill_n(out.as<T>(), out.count, T(0));
      for (int64_t i = 0; i < x.count; i++) {
        int64_t k = x.as<I>()[i];
        if (k < 0 || k >= size) continue;
        T& to = out.as<T>()[i / n * size + k];
        to = binary ? T(1) : T(to + (weights.count ? weights.as<T>()[i] : T(1)));
      }
    });
  }
};

// The size of the result is data: the host has to wait for the stream, here as on a real GPU.
template <class T>
struct Where {
  KERNEL_NAME("Where")
  explicit Where(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    drain_all_streams();
    std::vector<int64_t> found;
    for (int64_t i = 0; i < x.count; i++)
      if (x.as<T>()[i] != T(0)) found.push_back(i);
    Tensor out = c.out<int64_t>(0, {(int64_t)found.size(), x.rank()});
    if (!out.count) return;
    c.run(x.count, x.count * sizeof(T) + 8. * out.count, [=] {
      Dims strides = dense_strides(x.dims);
      int64_t* to = out.as<int64_t>();
      for (auto i : found)
        for (int a = 0; a < x.rank(); a++) *to++ = i / strides[a] % x.dims[a];
    });
  }
};

template <class I>
void reg_movers(TF_DataType type) {
  TF_DataType index = TypeOf<I>::value;
  for (auto i : kIndexTypes)
    reg<Gather<I>>("GatherV2", {{"Tparams", type}, {"Tindices", index}, {"Taxis", i}}, {"axis"});
  reg<GatherNd<I>>("GatherNd", {{"Tparams", type}, {"Tindices", index}});
  reg<OneHot<I>>("OneHot", {{"T", type}, {"TI", index}}, {"depth"});
}

template <class T, class I>
void reg_scatters() {
  Types t = {{"T", TypeOf<T>::value}, {"Tindices", TypeOf<I>::value}};
  reg<ScatterNd<T, I>>("ScatterNd", t, {"shape"});
  reg<TensorScatter<ScatterSet, T, I>>("TensorScatterUpdate", t),
      reg<TensorScatter<ScatterAdd, T, I>>("TensorScatterAdd", t);
  reg<TensorScatter<ScatterSub, T, I>>("TensorScatterSub", t),
      reg<TensorScatter<ScatterMax, T, I>>("TensorScatterMax", t);
  reg<TensorScatter<ScatterMin, T, I>>("TensorScatterMin", t);
  for (auto n : kIndexTypes) {
    Types s = {t[0], t[1], {"Tnumsegments", n}};
    reg<Segment<SegmentSum, T, I>>("UnsortedSegmentSum", s, {"num_segments"});
    reg<Segment<SegmentProd, T, I>>("UnsortedSegmentProd", s, {"num_segments"});
    reg<Segment<SegmentMax, T, I>>("UnsortedSegmentMax", s, {"num_segments"});
    reg<Segment<SegmentMin, T, I>>("UnsortedSegmentMin", s, {"num_segments"});
  }
}

}  // namespace

void register_gathers() {
  for (auto type : kMovable) {
    reg_movers<int32_t>(type), reg_movers<int64_t>(type);
    reg<OneHot<uint8_t>>("OneHot", {{"T", type}, {"TI", TF_UINT8}}, {"depth"});
  }
  // Of an int32 table on the device, as tf.gather(tokens, ...) makes one.
  reg_movers<int32_t>(TF_INT32), reg_movers<int64_t>(TF_INT32);
  for_types<float, double, half, bf16, int64_t, int32_t>(
      [](auto t) { reg_scatters<decltype(t), int32_t>(), reg_scatters<decltype(t), int64_t>(); });
  for (auto i : kIndexTypes) {
    Types t = {{"T", TF_BOOL}, {"Tindices", i}};  // masks
    if (i == TF_INT32)
      reg<TensorScatter<ScatterSet, bool, int32_t>>("TensorScatterUpdate", t);
    else
      reg<TensorScatter<ScatterSet, bool, int64_t>>("TensorScatterUpdate", t);
  }
  for_types<float, double, int32_t, int64_t>(
      [](auto t) { reg<Bucketize<decltype(t)>>("Bucketize", {{"T", TypeOf<decltype(t)>::value}}); });
  for_types<float, int32_t>([](auto t) {
    typedef decltype(t) T;
    reg<Bincount<T, int32_t>>("DenseBincount", {{"T", TypeOf<T>::value}, {"Tidx", TF_INT32}}, {"size"});
    reg<Bincount<T, int64_t>>("DenseBincount", {{"T", TypeOf<T>::value}, {"Tidx", TF_INT64}}, {"size"});
  });
  for_types<bool, float, int64_t, int32_t>(
      [](auto t) { reg<Where<decltype(t)>>("Where", {{"T", TypeOf<decltype(t)>::value}}); });
}

}  // namespace simgpu
