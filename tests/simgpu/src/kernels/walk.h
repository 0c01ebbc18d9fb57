// Walking over tensors of any rank: broadcasting and strides.
#pragma once
#include "kernel.h"

namespace simgpu {

// The shape that a and b broadcast to; false where they do not.
inline bool broadcast(const Dims& a, const Dims& b, Dims& out) {
  size_t n = std::max(a.size(), b.size());
  out.assign(n, 1);
  for (size_t i = 0; i < n; i++) {
    int64_t x = i < n - a.size() ? 1 : a[i - (n - a.size())];
    int64_t y = i < n - b.size() ? 1 : b[i - (n - b.size())];
    if (x != y && x != 1 && y != 1) return false;
    out[i] = x == 1 ? y : x;
  }
  return true;
}

// Strides that read a tensor of shape a as if it had the shape `out`.
inline Dims broadcast_strides(const Dims& a, const Dims& out) {
  Dims strides(out.size(), 0);
  int64_t k = 1;
  for (int i = (int)a.size() - 1; i >= 0; i--) {
    strides[i + out.size() - a.size()] = a[i] == 1 ? 0 : k;
    k *= a[i];
  }
  return strides;
}

inline Dims dense_strides(const Dims& d) {
  Dims strides(d.size());
  int64_t k = 1;
  for (int i = (int)d.size() - 1; i >= 0; i--) strides[i] = k, k *= d[i];
  return strides;
}

// Calls f(offset of the row in a dense tensor of shape d, offsets in the N other tensors, length of the row) for each
// innermost row.
template <size_t N, class F>
void each_row(const Dims& d, const Dims* strides, F f) {
  int rank = (int)d.size();
  int64_t total = product(d), length = rank ? d[rank - 1] : 1;
  if (!total) return;
  Dims index(rank, 0);
  int64_t offset[N] = {};
  for (int64_t at = 0; at < total; at += length) {
    f(at, offset, length);
    for (int k = rank - 2; k >= 0; k--) {
      for (size_t j = 0; j < N; j++) offset[j] += strides[j][k];
      if (++index[k] < d[k]) break;
      for (size_t j = 0; j < N; j++) offset[j] -= strides[j][k] * d[k];
      index[k] = 0;
    }
  }
}

// to[i] = from[base + offset by the strides], over a dense `to` of shape d; or the other way round.
template <class T>
void gather_strided(const Dims& d, const Dims& strides, const T* from, T* to) {
  int64_t step = d.empty() ? 0 : strides.back();
  each_row<1>(d, &strides, [&](int64_t at, const int64_t* offset, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[at + i] = from[offset[0] + i * step];
  });
}
template <class T>
void scatter_strided(const Dims& d, const Dims& strides, const T* from, T* to) {
  int64_t step = d.empty() ? 0 : strides.back();
  each_row<1>(d, &strides, [&](int64_t at, const int64_t* offset, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[offset[0] + i * step] = from[at + i];
  });
}

// The tensor as [outer, n, inner] around one axis.
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
  int axis;
  Around(const Dims& d, int64_t a) : axis((int)(a < 0 ? a + (int64_t)d.size() : a)) {
    for (int i = 0; i < (int)d.size(); i++) (i < axis ? outer : i > axis ? inner : n) *= d[i];
  }
};

// Ops that only move data are compiled once for each element size: calls f(word of that size).
template <class F>
void for_word(TF_DataType type, F f) {
  switch (TF_DataTypeSize(type)) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

// Bytes that a kernel moves which reads and writes as much as it puts out.
inline double two_passes(const Tensor& out) { return 2. * TF_TensorByteSize(out.handle); }

// Types of tensors that live in device memory on a GPU.
constexpr std::initializer_list<TF_DataType> kMovable = {TF_FLOAT,  TF_DOUBLE, TF_HALF,   TF_BFLOAT16,
                                                         TF_INT64,  TF_BOOL,   TF_UINT8,  TF_INT8,
                                                         TF_UINT16, TF_INT16,  TF_UINT32, TF_UINT64};

}  // namespace simgpu
