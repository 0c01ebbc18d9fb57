// The element types of kernels. The two short floats compute in float and round once, as a GPU's do.
#pragma once
#include <stdint.h>
#include <string.h>

#include "tensorflow/c/tf_datatype.h"

namespace simgpu {

struct half {  // IEEE half precision
  _Float16 v;
  half() = default;
  half(float f) : v((_Float16)f) {}
  operator float() const { return (float)v; }
};

struct bf16 {  // the upper half of a float
  uint16_t v;
  bf16() = default;
  bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    v = f != f ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;  // to the nearest, ties to even
  }
  operator float() const {
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
};

template <class T>
struct TypeOf;
#define SIMGPU_TYPE(T, DT)               \
  template <>                            \
  struct TypeOf<T> {                     \
    static const TF_DataType value = DT; \
  };
SIMGPU_TYPE(float, TF_FLOAT)
SIMGPU_TYPE(double, TF_DOUBLE)
SIMGPU_TYPE(half, TF_HALF)
SIMGPU_TYPE(bf16, TF_BFLOAT16)
SIMGPU_TYPE(int8_t, TF_INT8)
SIMGPU_TYPE(int16_t, TF_INT16)
SIMGPU_TYPE(int32_t, TF_INT32)
SIMGPU_TYPE(int64_t, TF_INT64)
SIMGPU_TYPE(uint8_t, TF_UINT8)
SIMGPU_TYPE(uint16_t, TF_UINT16)
SIMGPU_TYPE(uint32_t, TF_UINT32)
SIMGPU_TYPE(uint64_t, TF_UINT64)
SIMGPU_TYPE(bool, TF_BOOL)
#undef SIMGPU_TYPE

// What arithmetic on a T happens in.
template <class T>
struct Arithmetic {
  typedef T type;
};
template <>
struct Arithmetic<half> {
  typedef float type;
};
template <>
struct Arithmetic<bf16> {
  typedef float type;
};

}  // namespace simgpu
