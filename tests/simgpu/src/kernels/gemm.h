// Matrix products, and what Grappler folds into them.
#pragma once
#include "walk.h"

namespace simgpu {

// C[m,n] (+)= A[m,k] B[k,n], with A, B optionally stored transposed.
void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
          bool add = false);

// What Grappler's remapper folds into a MatMul or Conv2D: a bias, then an activation, over rows of n channels. It does
// so without asking whether the device has such a kernel.
struct Epilogue {
  bool bias = false;
  std::string activation;
  float alpha = 0.2f;

  void read(Attrs& a) {
    for (auto& f : a.strings("fused_ops")) {
      if (f == "BiasAdd")
        bias = true;
      else
        activation = f;
    }
    alpha = a.number("leakyrelu_alpha");
  }
  bool known() const {
    static const char* names[] = {"",        "Relu",      "Relu6",          "Elu", "LeakyRelu", "Tanh",
                                  "Sigmoid", "GeluExact", "GeluApproximate"};
    for (auto name : names)
      if (activation == name) return bias;
    return false;
  }
  void apply(float* y, const float* b, int64_t rows, int64_t n) const;
};

// Registers a kernel written for float for all floats that layers use.
template <class K>
void reg_floats(const char* op, const Names& host_memory = {}) {
  reg<K>(op, {{"T", TF_FLOAT}}, host_memory);
  for (auto t : {TF_HALF, TF_BFLOAT16}) reg<ViaFloat<K>>(op, {{"T", t}}, host_memory);
}

}  // namespace simgpu
