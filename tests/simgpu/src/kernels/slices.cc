// Parts of a tensor, and gradients into them.
#include "walk.h"

namespace simgpu {
namespace {

struct Slice {
  KERNEL_NAME("Slice")
  explicit Slice(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims begin = c.host_dims(1), d = c.host_dims(2), strides = dense_strides(x.dims);
    int64_t base = 0;
    for (int i = 0; i < x.rank(); i++) {
      if (d[i] < 0) d[i] = x.dims[i] - begin[i];  // -1: to the end
      if (begin[i] < 0 || begin[i] + d[i] > x.dims[i]) return c.fail("slice beyond " + text(x.dims));
      base += begin[i] * strides[i];
    }
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, 2. * TF_TensorByteSize(out.handle), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        gather_strided<T>(d, strides, x.as<T>() + base, out.as<T>());
      });
    });
  }
};

// Python's x[a:b:c, ..., None, 3], as the five masks spell it.
class SliceSpec {
  int64_t begin_mask_, end_mask_, ellipsis_mask_, new_axis_mask_, shrink_mask_;

 public:
  explicit SliceSpec(Attrs& a)
      : begin_mask_(a.integer("begin_mask")),
        end_mask_(a.integer("end_mask")),
        ellipsis_mask_(a.integer("ellipsis_mask")),
        new_axis_mask_(a.integer("new_axis_mask")),
        shrink_mask_(a.integer("shrink_axis_mask")) {}

  struct Part {
    Dims shape;    // of the result
    Dims counts;   // elements taken of each axis of the input ...
    Dims strides;  // ... and how far they are apart in it
    int64_t base = 0;
  };

  Part of(const Dims& whole, const Dims& begin, const Dims& end, const Dims& step) const {
    Part part;
    Dims dense = dense_strides(whole);
    size_t axis = 0;
    auto take = [&](int64_t from, int64_t by, int64_t count) {
      part.base += from * dense[axis];
      part.strides.push_back(by * dense[axis]), part.counts.push_back(count);
      axis++;
    };
    auto take_all = [&] {
      part.shape.push_back(whole[axis]);
      take(0, 1, whole[axis]);
    };
    int64_t n = (int64_t)begin.size(), new_axes = 0;
    bool past_ellipsis = false;
    for (int64_t i = 0; i < n; i++) new_axes += (new_axis_mask_ >> i & 1) && !(ellipsis_mask_ >> i & 1);
    for (int64_t i = 0; i < n; i++) {
      if (ellipsis_mask_ >> i & 1 && !past_ellipsis) {
        past_ellipsis = true;
        for (int64_t rest = (int64_t)whole.size() - (n - 1 - new_axes); rest > 0; rest--) take_all();
      } else if (new_axis_mask_ >> i & 1) {
        part.shape.push_back(1);
      } else if (shrink_mask_ >> i & 1) {
        take(begin[i] < 0 ? begin[i] + whole[axis] : begin[i], 1, 1);
      } else {
        int64_t size = whole[axis], by = step[i];
        int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
        auto clamp = [&](int64_t v) { return std::min(std::max(v < 0 ? v + size : v, least), most); };
        int64_t first = begin_mask_ >> i & 1 ? (by > 0 ? 0 : size - 1) : clamp(begin[i]);
        int64_t stop = end_mask_ >> i & 1 ? (by > 0 ? size : -1) : clamp(end[i]);
        int64_t count = by > 0 ? (stop - first + by - 1) / by : (first - stop - by - 1) / -by;
        count = std::max<int64_t>(count, 0);
        part.shape.push_back(count);
        take(first, by, count);
      }
    }
    while (axis < whole.size()) take_all();
    return part;
  }
};

struct StridedSlice {
  KERNEL_NAME("StridedSlice")
  SliceSpec spec;
  explicit StridedSlice(Attrs& a) : spec(a) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    auto part = spec.of(x.dims, c.host_dims(1), c.host_dims(2), c.host_dims(3));
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, part.shape);
    if (!out.count) return;
    c.run(0, 2. * TF_TensorByteSize(out.handle), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        gather_strided<T>(part.counts, part.strides, x.as<T>() + part.base, out.as<T>());
      });
    });
  }
};

struct StridedSliceGrad {
  KERNEL_NAME("StridedSliceGrad")
  SliceSpec spec;
  explicit StridedSliceGrad(Attrs& a) : spec(a) {}
  void run(Call& c) {
    Dims whole = c.host_dims(0);
    Tensor dy = c.in(4);
    auto part = spec.of(whole, c.host_dims(1), c.host_dims(2), c.host_dims(3));
    TF_DataType type = TF_TensorType(dy.handle);
    Tensor out = c.out(0, type, whole);
    if (!out.count) return;
    c.run(0, 2. * TF_TensorByteSize(out.handle), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        std::fill_n(out.as<T>(), out.count, T(0));
        scatter_strided<T>(part.counts, part.strides, dy.as<T>(), out.as<T>() + part.base);
      });
    });
  }
};

}  // namespace

void register_slices() {
  for (auto i : kIndexTypes) {
    Names bounds = {"begin", "end", "strides"};
    Names grad = {"shape", "begin", "end", "strides"};
    for (auto type : kMovable) {
      reg<Slice>("Slice", {{"T", type}, {"Index", i}}, {"begin", "size"});
      reg<StridedSlice>("StridedSlice", {{"T", type}, {"Index", i}}, bounds);
      reg<StridedSliceGrad>("StridedSliceGrad", {{"T", type}, {"Index", i}}, grad);
    }
    Types t = {{"T", TF_INT32}, {"Index", i}};
    reg<OnHost<Slice>>("Slice", t, {"input", "begin", "size", "output"});
    reg<OnHost<StridedSlice>>("StridedSlice", t, {"input", "begin", "end", "strides", "output"});
    reg<OnHost<StridedSliceGrad>>("StridedSliceGrad", t, {"shape", "begin", "end", "strides", "dy", "output"});
  }
}

}  // namespace simgpu
