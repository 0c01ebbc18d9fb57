// Batch normalisation.
#include "walk.h"

namespace simgpu {
namespace {

struct BatchNorm {
  KERNEL_NAME("FusedBatchNormV3")
  float eps, factor;
  bool train, nchw;
  explicit BatchNorm(Attrs& a)
      : eps(a.number("epsilon")),
        factor(a.number("exponential_avg_factor")),
        train(a.flag("is_training")),
        nchw(a.string("data_format").compare(0, 2, "NC") == 0) {}
  void run(Call& c) {
    Tensor x = c.in(0), g = c.in(1), b = c.in(2), m0 = c.in(3), v0 = c.in(4);
    int64_t C = g.count, inner = 1, per = C ? x.count / C : 0;
    if (nchw)
      for (size_t i = 2; i < x.dims.size(); i++) inner *= x.dims[i];
    Tensor y = c.out<float>(0, x.dims), m = c.out<float>(1, {C}), v = c.out<float>(2, {C});
    Tensor r1 = c.out<float>(3, {C}), r2 = c.out<float>(4, {C});
    c.out<float>(5, {0});
    if (!x.count) return;
    float eps = this->eps, factor = this->factor;
    bool train = this->train;
    c.run(8. * x.count, 12. * x.count, [=] {
      std::vector<double> s(C, 0), q(C, 0);
      const float* X = x.as<float>();
      if (train) {
        for (int64_t i = 0; i < x.count; i++) s[i / inner % C] += X[i];
        for (auto& t : s) t /= per;
        for (int64_t i = 0; i < x.count; i++) {
          double d = X[i] - s[i / inner % C];
          q[i / inner % C] += d * d;
        }
        for (auto& t : q) t /= per;
      } else {
        for (int64_t k = 0; k < C; k++) s[k] = m0.as<float>()[k], q[k] = v0.as<float>()[k];
      }
      for (int64_t i = 0; i < x.count; i++) {
        int64_t k = i / inner % C;
        (y.as<float>())[i] = (float)((X[i] - s[k]) / sqrt(q[k] + eps) * g.as<float>()[k] + b.as<float>()[k]);
      }
      double bessel = per > 1 ? (double)per / (per - 1) : 1;
      for (int64_t k = 0; k < C; k++) {
        double nm = s[k], nv = train ? q[k] * bessel : q[k];
        if (train && factor != 1)
          nm = (1 - factor) * m0.as<float>()[k] + factor * nm, nv = (1 - factor) * v0.as<float>()[k] + factor * nv;
        (m.as<float>())[k] = (float)nm, (v.as<float>())[k] = (float)nv;
        (r1.as<float>())[k] = (float)s[k], (r2.as<float>())[k] = (float)q[k];
      }
    });
  }
};
struct BatchNormGrad {
  KERNEL_NAME("FusedBatchNormGradV3")
  float eps;
  bool train, nchw;
  explicit BatchNormGrad(Attrs& a)
      : eps(a.number("epsilon")),
        train(a.flag("is_training")),
        nchw(a.string("data_format").compare(0, 2, "NC") == 0) {}
  void run(Call& c) {
    Tensor dy = c.in(0), x = c.in(1), g = c.in(2), m = c.in(3), v = c.in(4);
    int64_t C = g.count, inner = 1, per = C ? x.count / C : 0;
    if (nchw)
      for (size_t i = 2; i < x.dims.size(); i++) inner *= x.dims[i];
    Tensor dx = c.out<float>(0, x.dims), dg = c.out<float>(1, {C}), db = c.out<float>(2, {C});
    c.out<float>(3, {0}), c.out<float>(4, {0});
    if (!x.count) return;
    float eps = this->eps;
    bool train = this->train;
    c.run(12. * x.count, 16. * x.count, [=] {
      std::vector<double> sg(C, 0), sb(C, 0);
      const float *X = x.as<float>(), *D = dy.as<float>();
      auto inv = [&](int64_t k) { return 1 / sqrt((double)v.as<float>()[k] + eps); };
      for (int64_t i = 0; i < x.count; i++) {
        int64_t k = i / inner % C;
        sb[k] += D[i], sg[k] += D[i] * (X[i] - m.as<float>()[k]) * inv(k);
      }
      for (int64_t i = 0; i < x.count; i++) {
        int64_t k = i / inner % C;
        double xh = (X[i] - m.as<float>()[k]) * inv(k), d = D[i];
        if (train) d -= sb[k] / per + xh * sg[k] / per;
        (dx.as<float>())[i] = (float)(g.as<float>()[k] * inv(k) * d);
      }
      for (int64_t k = 0; k < C; k++) (dg.as<float>())[k] = (float)sg[k], (db.as<float>())[k] = (float)sb[k];
    });
  }
};

}  // namespace

void register_normalisation() {
  Types types = {{"T", TF_FLOAT}, {"U", TF_FLOAT}};
  reg<BatchNorm>("FusedBatchNormV3", types), reg<BatchNormGrad>("FusedBatchNormGradV3", types);
  for (auto t : {TF_HALF, TF_BFLOAT16}) {
    types[0].second = t;
    reg<ViaFloat<BatchNorm>>("FusedBatchNormV3", types), reg<ViaFloat<BatchNormGrad>>("FusedBatchNormGradV3", types);
  }
}

}  // namespace simgpu
