// Ops that move data without looking at it: compiled once for each element size.
#include "walk.h"

namespace simgpu {
namespace {

struct ZerosLike {
  KERNEL_NAME("ZerosLike")
  explicit ZerosLike(Attrs&) {}
  void run(Call& c) {
    Tensor out = c.out_like(0, c.in(0));
    if (!out.count) return;
    size_t bytes = TF_TensorByteSize(out.handle);
    c.run(0, bytes, [=] { memset(out.data, 0, bytes); });
  }
};

struct Fill {
  KERNEL_NAME("Fill")
  explicit Fill(Attrs&) {}
  void run(Call& c) {
    Tensor value = c.in(1);
    TF_DataType type = TF_TensorType(value.handle);
    Tensor out = c.out(0, type, c.host_dims(0));
    if (!out.count) return;
    c.run(0, two_passes(out) / 2, [=] {
      for_word(type, [&](auto word) { std::fill_n(out.as<decltype(word)>(), out.count, *value.as<decltype(word)>()); });
    });
  }
};

// SelectV2 broadcasts; the old Select takes a vector of conditions for the first axis instead.
template <bool OLD>
struct Select {
  KERNEL_NAME(OLD ? "Select" : "SelectV2")
  explicit Select(Attrs&) {}
  void run(Call& c) {
    Tensor condition = c.in(0), a = c.in(1), b = c.in(2);
    TF_DataType type = TF_TensorType(a.handle);
    if (OLD && condition.rank() == 1 && a.rank() > 1) condition.dims.resize(a.dims.size(), 1);
    Dims some, d;
    if (!broadcast(condition.dims, a.dims, some) || !broadcast(some, b.dims, d)) return c.fail("incompatible shapes");
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, 1.5 * two_passes(out), [=] {
      Dims strides[3];
      int64_t step[3] = {};
      const Tensor* inputs[3] = {&condition, &a, &b};
      for (int k = 0; k < 3; k++) {
        strides[k] = broadcast_strides(inputs[k]->dims, out.dims);
        if (!out.dims.empty()) step[k] = strides[k].back();
      }
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        each_row<3>(out.dims, strides, [&](int64_t at, const int64_t* o, int64_t n) {
          for (int64_t i = 0; i < n; i++) {
            bool yes = condition.as<bool>()[o[0] + i * step[0]];
            out.as<T>()[at + i] = yes ? a.as<T>()[o[1] + i * step[1]] : b.as<T>()[o[2] + i * step[2]];
          }
        });
      });
    });
  }
};

// Pushes a copy of x into a dense output of shape d, read by strides from an offset on.
void run_gather(Call& c, const Tensor& x, const Tensor& out, const Dims& d, const Dims& strides, int64_t base = 0) {
  if (!out.count) return;
  TF_DataType type = TF_TensorType(x.handle);
  c.run(0, two_passes(out), [=] {
    for_word(type, [&](auto word) {
      typedef decltype(word) T;
      gather_strided<T>(d, strides, x.as<T>() + base, out.as<T>());
    });
  });
}

struct BroadcastTo {
  KERNEL_NAME("BroadcastTo")
  explicit BroadcastTo(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out(0, TF_TensorType(x.handle), c.host_dims(1));
    if (c.failed) return;
    run_gather(c, x, out, out.dims, broadcast_strides(x.dims, out.dims));
  }
};

struct Tile {
  KERNEL_NAME("Tile")
  explicit Tile(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims times = c.host_dims(1), d = x.dims, paired, strides, dense = dense_strides(x.dims);
    for (int i = 0; i < x.rank(); i++) {
      d[i] *= times[i];
      // Each axis as (repetition, position): repetitions read the same place again.
      paired.push_back(times[i]), paired.push_back(x.dims[i]);
      strides.push_back(0), strides.push_back(dense[i]);
    }
    Tensor out = c.out(0, TF_TensorType(x.handle), d);
    if (!c.failed) run_gather(c, x, out, paired, strides);
  }
};

struct Transpose {
  KERNEL_NAME("Transpose")
  explicit Transpose(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims order = c.host_dims(1), d(order.size()), strides(order.size()), dense = dense_strides(x.dims);
    for (size_t i = 0; i < order.size(); i++) d[i] = x.dims[order[i]], strides[i] = dense[order[i]];
    Tensor out = c.out(0, TF_TensorType(x.handle), d);
    if (!c.failed) run_gather(c, x, out, d, strides);
  }
};

struct Reverse {
  KERNEL_NAME("ReverseV2")
  explicit Reverse(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out_like(0, x);
    Dims strides = dense_strides(x.dims);
    int64_t base = 0;
    for (auto axis : c.host_dims(1)) {
      int64_t a = axis < 0 ? axis + x.rank() : axis;
      base += (x.dims[a] - 1) * strides[a], strides[a] = -strides[a];
    }
    if (!c.failed) run_gather(c, x, out, x.dims, strides, base);
  }
};

struct Roll {
  KERNEL_NAME("Roll")
  explicit Roll(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), out = c.out_like(0, x);
    if (!out.count) return;
    Dims by(x.rank(), 0), shift = c.host_dims(1), axes = c.host_dims(2);
    for (size_t i = 0; i < axes.size(); i++) by[axes[i] < 0 ? axes[i] + x.rank() : axes[i]] += shift[i];
    TF_DataType type = TF_TensorType(x.handle);
    c.run(0, two_passes(out), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        for (int64_t i = 0; i < out.count; i++) {
          int64_t rest = i, to = 0, k = 1;
          for (int a = x.rank() - 1; a >= 0; a--) {
            int64_t n = x.dims[a], at = ((rest % n + by[a]) % n + n) % n;
            to += at * k, k *= n, rest /= n;
          }
          out.as<T>()[to] = x.as<T>()[i];
        }
      });
    });
  }
};

// Tensors one behind the other along an axis, each seen as rows: how Pack, Concat, Unpack and Split are alike.
void run_join(Call& c, const std::vector<Tensor>& parts, const Tensor& whole, int64_t rows, bool split) {
  if (!whole.count) return;
  TF_DataType type = TF_TensorType(whole.handle);
  c.run(0, two_passes(whole), [=] {
    for_word(type, [&](auto word) {
      typedef decltype(word) T;
      T* at = whole.as<T>();
      for (int64_t r = 0; r < rows; r++) {
        for (auto& part : parts) {
          int64_t n = part.count / rows;
          T* row = part.as<T>() + r * n;
          split ? std::copy_n(at, n, row) : std::copy_n(row, n, at);
          at += n;
        }
      }
    });
  });
}

int64_t outer(const Dims& d, int64_t axis) { return product(Dims(d.begin(), d.begin() + axis)); }

struct Pack {
  KERNEL_NAME("Pack")
  int64_t axis;
  explicit Pack(Attrs& a) : axis(a.integer("axis")) {}
  void run(Call& c) {
    std::vector<Tensor> parts = c.in_range(0, c.inputs());
    Dims d = parts[0].dims;
    int64_t at = axis < 0 ? axis + (int64_t)d.size() + 1 : axis;
    d.insert(d.begin() + at, (int64_t)parts.size());
    Tensor whole = c.out(0, TF_TensorType(parts[0].handle), d);
    if (!c.failed) run_join(c, parts, whole, outer(d, at), false);
  }
};

struct Unpack {
  KERNEL_NAME("Unpack")
  int64_t axis;
  explicit Unpack(Attrs& a) : axis(a.integer("axis")) {}
  void run(Call& c) {
    Tensor whole = c.in(0);
    int64_t at = axis < 0 ? axis + whole.rank() : axis;
    Dims d = whole.dims;
    d.erase(d.begin() + at);
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < whole.dims[at]; i++) parts.push_back(c.out((int)i, TF_TensorType(whole.handle), d));
    if (!c.failed) run_join(c, parts, whole, outer(d, at), true);
  }
};

template <bool V2>
struct Concat {
  KERNEL_NAME(V2 ? "ConcatV2" : "Concat")
  explicit Concat(Attrs&) {}
  void run(Call& c) {
    int n = c.inputs() - 1, first = V2 ? 0 : 1;
    int64_t axis = c.host_dims(V2 ? n : 0).at(0);
    std::vector<Tensor> parts = c.in_range(first, first + n);
    Dims d = parts[0].dims;
    if (axis < 0) axis += d.size();
    d[axis] = 0;
    for (auto& part : parts) d[axis] += part.dims[axis];
    Tensor whole = c.out(0, TF_TensorType(parts[0].handle), d);
    if (!c.failed) run_join(c, parts, whole, outer(d, axis), false);
  }
};

template <bool SIZES>
struct Split {
  KERNEL_NAME(SIZES ? "SplitV" : "Split")
  int64_t pieces;
  explicit Split(Attrs& a) : pieces(a.integer("num_split")) {}
  void run(Call& c) {
    Tensor whole = c.in(SIZES ? 0 : 1);
    int64_t axis = c.host_dims(SIZES ? 2 : 0).at(0), left;
    if (axis < 0) axis += whole.rank();
    Dims sizes = SIZES ? c.host_dims(1) : Dims(pieces, whole.dims[axis] / pieces);
    left = whole.dims[axis];
    for (auto n : sizes) left -= n < 0 ? 0 : n;
    for (auto& n : sizes) n = n < 0 ? left : n;  // -1: what is left
    std::vector<Tensor> parts;
    Dims d = whole.dims;
    for (int64_t i = 0; i < pieces; i++) {
      d[axis] = sizes[i];
      parts.push_back(c.out((int)i, TF_TensorType(whole.handle), d));
    }
    if (!c.failed) run_join(c, parts, whole, outer(d, axis), true);
  }
};

template <bool VALUE>
struct Pad {
  KERNEL_NAME(VALUE ? "PadV2" : "Pad")
  explicit Pad(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0), value = VALUE ? c.in(2) : Tensor();
    Dims pads = c.host_dims(1), d = x.dims;
    for (int i = 0; i < x.rank(); i++) d[i] += pads[2 * i] + pads[2 * i + 1];
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    Dims strides = dense_strides(d);
    int64_t base = 0;
    for (int i = 0; i < x.rank(); i++) base += pads[2 * i] * strides[i];
    c.run(0, two_passes(out), [=] {
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        std::fill_n(out.as<T>(), out.count, VALUE ? *value.as<T>() : T(0));
        scatter_strided<T>(x.dims, strides, x.as<T>(), out.as<T>() + base);
      });
    });
  }
};

// Where each element of the padded tensor comes from: the edge is repeated (symmetric) or not (reflect).
struct Mirror {
  bool symmetric;
  explicit Mirror(Attrs& a) : symmetric(a.string("mode") == "SYMMETRIC") {}
  std::vector<int64_t> sources(const Dims& inner, const Dims& padded, const Dims& pads) const {
    std::vector<int64_t> from(product(padded));
    Dims strides = dense_strides(inner);
    int skip = symmetric ? 0 : 1;
    for (int64_t i = 0; i < (int64_t)from.size(); i++) {
      int64_t rest = i, at = 0;
      for (int a = (int)padded.size() - 1; a >= 0; a--) {
        int64_t k = rest % padded[a] - pads[2 * a], n = inner[a];
        if (k < 0) k = -k - 1 + skip;
        if (k >= n) k = 2 * n - 1 - skip - k;
        at += k * strides[a], rest /= padded[a];
      }
      from[i] = at;
    }
    return from;
  }
};

struct MirrorPad : Mirror {
  KERNEL_NAME("MirrorPad")
  using Mirror::Mirror;
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims pads = c.host_dims(1), d = x.dims;
    for (int i = 0; i < x.rank(); i++) d[i] += pads[2 * i] + pads[2 * i + 1];
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, two_passes(out), [=, mirror = Mirror(*this)] {
      auto from = mirror.sources(x.dims, out.dims, pads);
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        for (int64_t i = 0; i < out.count; i++) out.as<T>()[i] = x.as<T>()[from[i]];
      });
    });
  }
};

struct MirrorPadGrad : Mirror {
  KERNEL_NAME("MirrorPadGrad")
  using Mirror::Mirror;
  void run(Call& c) {
    Tensor dy = c.in(0);
    Dims pads = c.host_dims(1), d = dy.dims;
    for (int i = 0; i < dy.rank(); i++) d[i] -= pads[2 * i] + pads[2 * i + 1];
    Tensor dx = c.out<float>(0, d);
    if (!dx.count) return;
    c.run(dy.count, two_passes(dx), [=, mirror = Mirror(*this)] {
      auto from = mirror.sources(dx.dims, dy.dims, pads);
      std::fill_n(dx.as<float>(), dx.count, 0.f);
      for (int64_t i = 0; i < dy.count; i++) dx.as<float>()[from[i]] += dy.as<float>()[i];
    });
  }
};

// [batch * blocks, ...] against [batch, ...]: the same walk in both directions.
template <bool TO_BATCH>
struct SpaceBatch {
  KERNEL_NAME(TO_BATCH ? "SpaceToBatchND" : "BatchToSpaceND")
  explicit SpaceBatch(Attrs&) {}
  void run(Call& c) {
    Tensor x = c.in(0);
    Dims block = c.host_dims(1), edges = c.host_dims(2), d = x.dims;
    int m = (int)block.size();
    int64_t blocks = product(block);
    d[0] = TO_BATCH ? d[0] * blocks : d[0] / blocks;
    for (int i = 0; i < m; i++) {
      int64_t both = edges[2 * i] + edges[2 * i + 1];
      d[i + 1] = TO_BATCH ? (d[i + 1] + both) / block[i] : d[i + 1] * block[i] - both;
    }
    TF_DataType type = TF_TensorType(x.handle);
    Tensor out = c.out(0, type, d);
    if (!out.count) return;
    c.run(0, two_passes(out), [=] {
      const Tensor &in_batch = TO_BATCH ? out : x, &in_space = TO_BATCH ? x : out;
      int64_t inner = product(Dims(d.begin() + m + 1, d.end())), batch = in_space.dims[0];
      for_word(type, [&](auto word) {
        typedef decltype(word) T;
        if (TO_BATCH) std::fill_n(out.as<T>(), out.count, T(0));
        for (int64_t i = 0; i < in_batch.count / inner; i++) {
          int64_t rest = i, at = 0, k = inner, where[8];
          for (int a = m; a >= 0; a--) where[a] = rest % in_batch.dims[a], rest /= in_batch.dims[a];
          int64_t offset = where[0] / batch;  // the position within the block
          bool inside = true;
          for (int a = m; a >= 1; a--) {
            int64_t p = where[a] * block[a - 1] + offset % block[a - 1] - edges[2 * (a - 1)];
            offset /= block[a - 1];
            inside = inside && p >= 0 && p < in_space.dims[a];
            at += p * k, k *= in_space.dims[a];
          }
          at += where[0] % batch * k;
          if (!inside) continue;
          T *packed = in_batch.as<T>() + i * inner, *spread = in_space.as<T>() + at;
          TO_BATCH ? std::copy_n(spread, inner, packed) : std::copy_n(packed, inner, spread);
        }
      });
    });
  }
};

template <bool TO_DEPTH>
struct SpaceDepth {
  KERNEL_NAME(TO_DEPTH ? "SpaceToDepth" : "DepthToSpace")
  int64_t b;
  std::string format;
  explicit SpaceDepth(Attrs& a) : b(a.integer("block_size")), format(a.string("data_format")) {}
  void run(Call& c) {
    if (format != "NHWC" && format != "NCHW") return c.fail("data format " + format);
    Tensor x = c.in(0);
    bool nchw = format == "NCHW";
    int h = nchw ? 2 : 1, w = h + 1, ch = nchw ? 1 : 3;
    Dims d = x.dims;
    if (TO_DEPTH)
      d[h] /= b, d[w] /= b, d[ch] *= b * b;
    else
      d[h] *= b, d[w] *= b, d[ch] /= b * b;
    Tensor out = c.out(0, TF_TensorType(x.handle), d);
    if (c.failed) return;
    const Dims& space = TO_DEPTH ? x.dims : d;
    // Six axes: batch, and of the tensor in space height = (H, b), width = (W, b), channels.
    int64_t N = d[0], H = space[h] / b, W = space[w] / b, C = space[ch];
    Dims s = dense_strides(x.dims);
    if (TO_DEPTH) {
      Dims sizes = nchw ? Dims{N, b, b, C, H, W} : Dims{N, H, W, b, b, C};
      Dims from =
          nchw ? Dims{s[0], s[2], s[3], s[1], s[2] * b, s[3] * b} : Dims{s[0], s[1] * b, s[2] * b, s[1], s[2], 1};
      run_gather(c, x, out, sizes, from);
    } else {
      Dims sizes = nchw ? Dims{N, C, H, b, W, b} : Dims{N, H, b, W, b, C};
      Dims from = nchw ? Dims{s[0], s[1], s[2], s[1] * b * C, s[3], s[1] * C} : Dims{s[0], s[1], b * C, s[2], C, 1};
      run_gather(c, x, out, sizes, from);
    }
  }
};

void reg_movers(TF_DataType type) {
  Types t = {{"T", type}};
  reg<ZerosLike>("ZerosLike", t);
  reg<Select<false>>("SelectV2", t), reg<Select<true>>("Select", t);
  reg<Pack>("Pack", t), reg<Unpack>("Unpack", t);
  reg<Concat<false>>("Concat", t, {"concat_dim"});
  reg<Split<false>>("Split", t, {"split_dim"});
  reg<SpaceDepth<true>>("SpaceToDepth", t), reg<SpaceDepth<false>>("DepthToSpace", t);
  for (auto i : kIndexTypes) {
    auto with = [&](const char* index) { return Types{{"T", type}, {index, i}}; };
    reg<Fill>("Fill", with("index_type"), {"dims"});
    reg<BroadcastTo>("BroadcastTo", with("Tidx"), {"shape"});
    reg<Tile>("Tile", with("Tmultiples"), {"multiples"});
    reg<Transpose>("Transpose", with("Tperm"), {"perm"});
    reg<Concat<true>>("ConcatV2", with("Tidx"), {"axis"});
    reg<Split<true>>("SplitV", with("Tlen"), {"size_splits", "split_dim"});
    reg<Reverse>("ReverseV2", with("Tidx"), {"axis"});
    reg<Pad<false>>("Pad", with("Tpaddings"), {"paddings"});
    reg<Pad<true>>("PadV2", with("Tpaddings"), {"paddings"});
    reg<MirrorPad>("MirrorPad", with("Tpaddings"), {"paddings"});
    for (auto j : kIndexTypes) {
      reg<Roll>("Roll", {{"T", type}, {"Tshift", i}, {"Taxis", j}}, {"shift", "axis"});
      Types crops = {{"T", type}, {"Tblock_shape", i}, {"Tcrops", j}};
      reg<SpaceBatch<false>>("BatchToSpaceND", crops, {"block_shape", "crops"});
      Types pads = {{"T", type}, {"Tblock_shape", i}, {"Tpaddings", j}};
      reg<SpaceBatch<true>>("SpaceToBatchND", pads, {"block_shape", "paddings"});
    }
  }
}

// int32 tensors live in host memory on a GPU, because they are shapes most of the time: these run on the host at once.
void reg_host_movers() {
  Types t = {{"T", TF_INT32}};
  reg<OnHost<Pack>>("Pack", t, {"values", "output"});
  reg<OnHost<Unpack>>("Unpack", t, {"value", "output"});
  reg<OnHost<Split<false>>>("Split", t, {"split_dim", "value", "output"});
  // Results of comparisons of device data: in device memory all the same.
  reg<Select<false>>("SelectV2", t), reg<Select<true>>("Select", t);
  for (auto i : kIndexTypes) {
    auto with = [&](const char* index) { return Types{{"T", TF_INT32}, {index, i}}; };
    reg<OnHost<Tile>>("Tile", with("Tmultiples"), {"input", "multiples", "output"});
    reg<OnHost<Transpose>>("Transpose", with("Tperm"), {"x", "perm", "y"});
    reg<OnHost<Reverse>>("ReverseV2", with("Tidx"), {"tensor", "axis", "output"});
    reg<OnHost<Pad<false>>>("Pad", with("Tpaddings"), {"input", "paddings", "output"});
    reg<OnHost<Pad<true>>>("PadV2", with("Tpaddings"), {"input", "paddings", "constant_values", "output"});
    reg<OnHost<Split<true>>>("SplitV", with("Tlen"), {"value", "size_splits", "split_dim", "output"});
  }
}

}  // namespace

void register_shapes() {
  for (auto type : kMovable) reg_movers(type);
  reg_host_movers();
  for (auto i : kIndexTypes) {
    reg<MirrorPadGrad>("MirrorPadGrad", {{"T", TF_FLOAT}, {"Tpaddings", i}}, {"paddings"});
    reg<ViaFloat<MirrorPadGrad>>("MirrorPadGrad", {{"T", TF_HALF}, {"Tpaddings", i}}, {"paddings"});
  }
}

}  // namespace simgpu
