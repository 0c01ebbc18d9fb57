// Softmax and the losses that TensorFlow fuses with it.
#include "gemm.h"

namespace simgpu {
namespace {

void softmax_row(const float* x, float* y, int64_t n, bool logp) {
  float m = x[0];
  for (int64_t i = 1; i < n; i++) m = std::max(m, x[i]);
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += exp(x[i] - m);
  float ls = (float)log(s);
  for (int64_t i = 0; i < n; i++) y[i] = logp ? x[i] - m - ls : (float)(exp(x[i] - m) / s);
}
template <bool LOG>
struct Softmax {
  KERNEL_NAME(LOG ? "LogSoftmax" : "Softmax")
  explicit Softmax(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), o = c.out<float>(0, a.dims);
    if (!o.count) return;
    c.run(8. * a.count, 8. * a.count, [=] {
      int64_t n = a.dims.back();
      for (int64_t i = 0; i < a.count; i += n) softmax_row(a.as<float>() + i, o.as<float>() + i, n, LOG);
    });
  }
};
template <class L>
struct SparseXent {
  KERNEL_NAME("SparseSoftmaxCrossEntropyWithLogits")
  explicit SparseXent(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), l = c.in(1);
    Tensor loss = c.out<float>(0, {a.dims[0]}), g = c.out<float>(1, a.dims);
    if (!a.count) return;
    c.run(10. * a.count, 12. * a.count, [=] {
      int64_t n = a.dims[1];
      for (int64_t i = 0; i < a.dims[0]; i++) {
        float* y = g.as<float>() + i * n;
        softmax_row(a.as<float>() + i * n, y, n, true);
        int64_t k = l.as<L>()[i];
        bool good = k >= 0 && k < n;
        (loss.as<float>())[i] = good ? -y[k] : NAN;
        for (int64_t j = 0; j < n; j++) y[j] = good ? expf(y[j]) - (j == k) : NAN;
      }
    });
  }
};
struct Xent {
  KERNEL_NAME("SoftmaxCrossEntropyWithLogits")
  explicit Xent(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), l = c.in(1);
    if (a.dims != l.dims) return c.fail("logits and labels of one shape only");
    Tensor loss = c.out<float>(0, {a.dims[0]}), g = c.out<float>(1, a.dims);
    if (!a.count) return;
    c.run(10. * a.count, 12. * a.count, [=] {
      int64_t n = a.dims[1];
      for (int64_t i = 0; i < a.dims[0]; i++) {
        float *y = g.as<float>() + i * n, s = 0;
        const float* q = l.as<float>() + i * n;
        softmax_row(a.as<float>() + i * n, y, n, true);
        for (int64_t j = 0; j < n; j++) s -= q[j] * y[j], y[j] = expf(y[j]) - q[j];
        (loss.as<float>())[i] = s;
      }
    });
  }
};
struct L2Loss {
  KERNEL_NAME("L2Loss")
  explicit L2Loss(Attrs&) {}
  void run(Call& c) {
    Tensor a = c.in(0), o = c.out<float>(0, {});
    c.run(2. * a.count, 4. * a.count, [=] {
      double s = 0;
      for (int64_t i = 0; i < a.count; i++) s += (double)a.as<float>()[i] * a.as<float>()[i];
      *o.as<float>() = (float)(s / 2);
    });
  }
};

template <class L>
void reg_sparse() {
  const char* op = "SparseSoftmaxCrossEntropyWithLogits";
  TF_DataType labels = TypeOf<L>::value;
  reg<SparseXent<L>>(op, {{"T", TF_FLOAT}, {"Tlabels", labels}});
  for (auto t : {TF_HALF, TF_BFLOAT16}) reg<ViaFloat<SparseXent<L>>>(op, {{"T", t}, {"Tlabels", labels}});
}

}  // namespace

void register_losses() {
  reg_floats<Softmax<false>>("Softmax"), reg_floats<Softmax<true>>("LogSoftmax");
  reg_floats<Xent>("SoftmaxCrossEntropyWithLogits"), reg_floats<L2Loss>("L2Loss");
  reg_sparse<int32_t>(), reg_sparse<int64_t>();
}

}  // namespace simgpu
