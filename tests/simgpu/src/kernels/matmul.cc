// Matrix products: plain, batched, with a bias and an activation, and Einsum.
#include "gemm.h"

namespace simgpu {

// Blocked, and compiled for wide vectors where the machine has them: the time that this takes limits how fast a GPU can
// be simulated.
#if defined(__x86_64__)
__attribute__((target_clones("arch=haswell", "default")))
#endif
void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool add) {
  std::vector<float> bt, at;
  if (tb) {
    bt.resize(k * n);
    for (int64_t j = 0; j < n; j++)
      for (int64_t p = 0; p < k; p++) bt[p * n + j] = b[j * k + p];
    b = bt.data();
  }
  if (ta) {
    at.resize(k * m);
    for (int64_t p = 0; p < k; p++)
      for (int64_t i = 0; i < m; i++) at[i * k + p] = a[p * m + i];
    a = at.data();
  }
  if (!add) memset(c, 0, m * n * sizeof(float));
  const int64_t KB = 128;
  for (int64_t p0 = 0; p0 < k; p0 += KB) {
    int64_t p1 = std::min(k, p0 + KB);
    for (int64_t i = 0; i < m; i++) {
      float* __restrict ci = c + i * n;
      for (int64_t p = p0; p < p1; p++) {
        float x = a[i * k + p];
        const float* __restrict bp = b + p * n;
        for (int64_t j = 0; j < n; j++) ci[j] += x * bp[j];
      }
    }
  }
}

void Epilogue::apply(float* y, const float* b, int64_t rows, int64_t n) const {
  auto each = [&](auto f) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < n; j++) y[i * n + j] = f(y[i * n + j] + b[j]);
  };
  if (activation.empty()) each([](float v) { return v; });
  if (activation == "Relu") each([](float v) { return v > 0 ? v : 0; });
  if (activation == "Relu6") each([](float v) { return v < 0 ? 0 : v > 6 ? 6 : v; });
  if (activation == "Elu") each([](float v) { return v > 0 ? v : expm1f(v); });
  if (activation == "LeakyRelu") each([k = alpha](float v) { return v > 0 ? v : k * v; });
  if (activation == "Tanh") each([](float v) { return tanhf(v); });
  if (activation == "Sigmoid") each([](float v) { return 1 / (1 + expf(-v)); });
  if (activation == "GeluExact") each([](float v) { return v * 0.5f * (1 + erff(v * (float)M_SQRT1_2)); });
  if (activation == "GeluApproximate")
    each([](float v) { return v * 0.5f * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))); });
}

namespace {

struct FusedMatMul {
  KERNEL_NAME("_FusedMatMul")
  bool ta, tb;
  Epilogue e;
  explicit FusedMatMul(Attrs& a) : ta(a.flag("transpose_a")), tb(a.flag("transpose_b")) { e.read(a); }
  void run(Call& c) {
    if (!e.known()) return c.fail("fused operation " + e.activation);
    Tensor a = c.in(0), b = c.in(1), bias = c.in(2);
    int64_t m = a.dims[ta], k = a.dims[!ta], n = b.dims[!tb];
    Tensor o = c.out<float>(0, {m, n});
    if (!o.count) return;
    bool ta = this->ta, tb = this->tb;
    Epilogue e = this->e;
    c.multiply(2. * m * n * k, 4. * (a.count + b.count + o.count), {m, n, k}, [=] {
      gemm(a.as<float>(), b.as<float>(), o.as<float>(), m, n, k, ta, tb);
      e.apply(o.as<float>(), bias.as<float>(), m, n);
    });
  }
};
struct MatMul {
  KERNEL_NAME("MatMul")
  bool ta, tb;
  explicit MatMul(Attrs& a) : ta(a.flag("transpose_a")), tb(a.flag("transpose_b")) {}
  void run(Call& c) {
    Tensor a = c.in(0), b = c.in(1);
    if (a.dims.size() != 2 || b.dims.size() != 2) return c.fail("rank must be 2");
    int64_t m = a.dims[ta], k = a.dims[!ta], n = b.dims[!tb];
    if (b.dims[tb] != k) return c.fail("matrix size-incompatible");
    Tensor o = c.out<float>(0, {m, n});
    if (!o.count) return;
    bool ta = this->ta, tb = this->tb;
    c.multiply(2. * m * n * k, 4. * (a.count + b.count + o.count), {m, n, k},
               [=] { gemm(a.as<float>(), b.as<float>(), o.as<float>(), m, n, k, ta, tb); });
  }
};
struct BatchMatMul {
  KERNEL_NAME("BatchMatMulV2")
  bool ta, tb;
  explicit BatchMatMul(Attrs& a) : ta(a.flag("adj_x")), tb(a.flag("adj_y")) {}
  void run(Call& c) {
    Tensor a = c.in(0), b = c.in(1);
    size_t ra = a.dims.size(), rb = b.dims.size();
    int64_t m = a.dims[ra - 2 + ta], k = a.dims[ra - 1 - ta], n = b.dims[rb - 1 - tb];
    Dims ba(a.dims.begin(), a.dims.end() - 2), bb(b.dims.begin(), b.dims.end() - 2), d;
    if (!broadcast(ba, bb, d)) return c.fail("incompatible batch shapes");
    Dims od = d;
    od.push_back(m), od.push_back(n);
    Tensor o = c.out<float>(0, od);
    if (!o.count) return;
    bool ta = this->ta, tb = this->tb;
    c.multiply(2. * o.count * k, 4. * (a.count + b.count + o.count), {m, n, k}, [=] {
      Dims sa = broadcast_strides(ba, d), sb = broadcast_strides(bb, d);
      for (int64_t i = 0; i < product(d); i++) {
        int64_t r = i, x = 0, y = 0;
        for (int j = (int)d.size() - 1; j >= 0; j--) x += r % d[j] * sa[j], y += r % d[j] * sb[j], r /= d[j];
        gemm(a.as<float>() + x * m * k, b.as<float>() + y * k * n, o.as<float>() + i * m * n, m, n, k, ta, tb);
      }
    });
  }
};

template <bool OLD>
struct BiasAdd {
  KERNEL_NAME("BiasAdd")
  bool nchw;
  explicit BiasAdd(Attrs& a) : nchw(!OLD && a.string("data_format").compare(0, 2, "NC") == 0) {}
  void run(Call& c) {
    Tensor a = c.in(0), b = c.in(1), o = c.out<float>(0, a.dims);
    if (!o.count) return;
    int64_t ch = b.count, inner = 1;
    if (nchw)
      for (size_t i = 2; i < a.dims.size(); i++) inner *= a.dims[i];
    c.run(o.count, 8. * o.count, [=] {
      const float *x = a.as<float>(), *y = b.as<float>();
      float* z = o.as<float>();
      for (int64_t i = 0, k = 0; i < o.count; k = k + 1 == ch ? 0 : k + 1)
        for (int64_t e = i + inner; i < e; i++) z[i] = x[i] + y[k];
    });
  }
};
struct BiasAddGrad {
  KERNEL_NAME("BiasAddGrad")
  bool nchw;
  explicit BiasAddGrad(Attrs& a) : nchw(a.string("data_format").compare(0, 2, "NC") == 0) {}
  void run(Call& c) {
    Tensor a = c.in(0);
    int64_t ch = nchw ? a.dims[1] : a.dims.back(), inner = 1;
    if (nchw)
      for (size_t i = 2; i < a.dims.size(); i++) inner *= a.dims[i];
    Tensor o = c.out<float>(0, {ch});
    if (!o.count) return;
    c.run(a.count, 4. * a.count, [=] {
      std::vector<double> acc(ch, 0);
      const float* x = a.as<float>();
      for (int64_t i = 0, k = 0; i < a.count; k = k + 1 == ch ? 0 : k + 1) {
        double t = 0;
        for (int64_t e = i + inner; i < e; i++) t += x[i];
        acc[k] += t;
      }
      for (int64_t i = 0; i < ch; i++) (o.as<float>())[i] = (float)acc[i];
    });
  }
};

struct Einsum {
  KERNEL_NAME("Einsum")
  std::vector<std::string> ins;
  std::string out;
  explicit Einsum(Attrs& a) {
    std::string e = a.string("equation");
    size_t arrow = e.find("->");
    out = e.substr(arrow + 2), e.resize(arrow);
    for (size_t p = 0; p <= e.size();) {
      size_t q = std::min(e.find(',', p), e.size());
      ins.push_back(e.substr(p, q - p)), p = q + 1;
    }
  }
  void run(Call& c) {
    std::string labels = out;
    for (auto& s : ins)
      for (char l : s)
        if (l == '.')
          return c.fail("ellipsis in equation");
        else if (labels.find(l) == std::string::npos)
          labels += l;
    if (ins.size() > 2) return c.fail("more than two operands");
    Dims size(labels.size(), 1), d, st[3];
    Tensor x[2];
    for (size_t k = 0; k < ins.size(); k++) {
      x[k] = c.in((int)k), st[k].assign(labels.size(), 0);
      int64_t s = 1;
      for (int i = (int)ins[k].size() - 1; i >= 0; i--) {
        size_t j = labels.find(ins[k][i]);
        st[k][j] += s, s *= x[k].dims[i], size[j] = x[k].dims[i];
      }
    }
    for (size_t i = 0; i < out.size(); i++) d.push_back(size[i]);
    Tensor o = c.out<float>(0, d);
    if (!o.count) return;
    int64_t inner = product(size) / o.count;
    bool two = ins.size() == 2;
    if (!two) st[1].assign(labels.size(), 0);
    c.run(2. * o.count * inner, 4. * (x[0].count + x[1].count + o.count), [=] {
      std::vector<int64_t> idx(size.size(), 0);
      const float *a = x[0].as<float>(), *b = x[1].as<float>();
      int64_t p = 0, q = 0;
      for (int64_t i = 0; i < o.count; i++) {
        double s = 0;
        for (int64_t j = 0; j < inner; j++) {
          s += two ? a[p] * b[q] : a[p];
          for (int k = (int)size.size() - 1; k >= 0; k--) {
            p += st[0][k], q += st[1][k];
            if (++idx[k] < size[k]) break;
            p -= st[0][k] * size[k], q -= st[1][k] * size[k], idx[k] = 0;
          }
        }
        (o.as<float>())[i] = (float)s;
      }
    });
  }
};

}  // namespace

void register_matmul() {
  reg_floats<MatMul>("MatMul"), reg_floats<FusedMatMul>("_FusedMatMul");
  reg_floats<BatchMatMul>("BatchMatMul"), reg_floats<BatchMatMul>("BatchMatMulV2");
  reg_floats<Einsum>("Einsum");
  reg_floats<BiasAdd<false>>("BiasAdd"), reg_floats<BiasAdd<true>>("BiasAddV1"), reg_floats<BiasAddGrad>("BiasAddGrad");
}

}  // namespace simgpu
