// Random numbers: Philox 4x32-10 (Salmon et al., 2011), numbered as TensorFlow numbers it, so that the same seeds give
// the same values as on the CPU, and a model trains alike on both.
#include <mutex>
#include <random>

#include "kernel.h"

namespace simgpu {
namespace {

struct Philox {
  uint32_t key[2] = {}, counter[4] = {};

  void skip(uint64_t n) {
    uint64_t low = (uint64_t)counter[1] << 32 | counter[0], sum = low + n;
    counter[0] = (uint32_t)sum, counter[1] = (uint32_t)(sum >> 32);
    if (sum < low && ++counter[2] == 0) ++counter[3];
  }
  void block(uint32_t* result) const {
    uint32_t a = key[0], b = key[1], x[4];
    memcpy(x, counter, sizeof x);
    for (int round = 0; round < 10; round++, a += 0x9E3779B9u, b += 0xBB67AE85u) {
      uint64_t p = 0xD2511F53ull * x[0], q = 0xCD9E8D57ull * x[2];
      uint32_t y[4] = {(uint32_t)(q >> 32) ^ x[1] ^ a, (uint32_t)q, (uint32_t)(p >> 32) ^ x[3] ^ b, (uint32_t)p};
      memcpy(x, y, sizeof x);
    }
    memcpy(result, x, sizeof x);
  }
};

// In [0, 1): the random bits become the mantissa of a number in [1, 2).
float unit(uint32_t x) {
  uint32_t bits = (x & 0x7fffff) | 127u << 23;
  float f;
  memcpy(&f, &bits, 4);
  return f - 1;
}
double unit(uint32_t high, uint32_t low) {
  uint64_t bits = (uint64_t)(high & 0xfffff) << 32 | low | 1023ull << 52;
  double f;
  memcpy(&f, &bits, 8);
  return f - 1;
}
void box_muller(uint32_t x, uint32_t y, float* out) {
  float r = sqrtf(-2 * logf(std::max(unit(x), 1e-7f))), angle = 6.2831853071795864769f * unit(y);
  out[0] = sinf(angle) * r, out[1] = cosf(angle) * r;
}

// A distribution turns one block of four words into kGroup values.
template <class T>
struct Uniform {
  static const int kGroup = 4;
  static void draw(Philox g, T* out) {
    uint32_t x[4];
    g.block(x);
    for (int i = 0; i < 4; i++) {
      if (std::is_same<T, float>::value) out[i] = T(unit(x[i]));
      if (std::is_same<T, half>::value) out[i] = T((float)(x[i] & 0x3ff) / 0x400);
      if (std::is_same<T, bf16>::value) out[i] = T((float)(x[i] & 0x7f) / 0x80);
    }
  }
  static int64_t skip() { return 1; }
};
template <>
struct Uniform<double> {
  static const int kGroup = 2;
  static void draw(Philox g, double* out) {
    uint32_t x[4];
    g.block(x);
    out[0] = unit(x[0], x[1]), out[1] = unit(x[2], x[3]);
  }
  static int64_t skip() { return 1; }
};
template <class T>
struct Normal {
  static const int kGroup = 4;
  static void draw(Philox g, T* out) {
    uint32_t x[4];
    float f[4];
    g.block(x);
    box_muller(x[0], x[1], f), box_muller(x[2], x[3], f + 2);
    for (int i = 0; i < 4; i++) out[i] = T(f[i]);
  }
  static int64_t skip() { return 1; }
};
template <>
struct Normal<double> {
  static const int kGroup = 2;
  static void draw(Philox g, double* out) {
    uint32_t x[4];
    g.block(x);
    double r = sqrt(-2 * log(std::max(unit(x[0], x[1]), 1e-7))), angle = 2 * M_PI * unit(x[2], x[3]);
    out[0] = sin(angle) * r, out[1] = cos(angle) * r;
  }
  static int64_t skip() { return 1; }
};
// Rejects what lies beyond two deviations, so a group takes an unknown number of words: 256 blocks are set aside.
template <class T>
struct Truncated {
  static const int kGroup = 4;
  static void draw(Philox g, T* out) {
    uint32_t x[4];
    float f[4];
    for (int n = 0;; g.skip(1)) {
      g.block(x);
      box_muller(x[0], x[1], f), box_muller(x[2], x[3], f + 2);
      for (float v : f)
        if (fabsf(v) < 2) {
          out[n++] = T(v);
          if (n == 4) return;
        }
    }
  }
  static int64_t skip() { return 256; }
};

template <class D, class T>
void fill_random(Philox g, T* to, int64_t n) {
  T values[4];
  for (int64_t i = 0; i < n; i += D::kGroup, g.skip(D::skip())) {
    D::draw(g, values);
    std::copy_n(values, std::min<int64_t>(D::kGroup, n - i), to + i);
  }
}

// Integers, from all bits or reduced to a range; 64 bits take two words.
template <class T>
void fill_integers(Philox g, T* to, int64_t n, bool full, uint64_t low, uint64_t range) {
  const int group = sizeof(T) == 8 ? 2 : 4;
  for (int64_t i = 0; i < n; i += group, g.skip(1)) {
    uint32_t x[4];
    g.block(x);
    for (int k = 0; k < group && i + k < n; k++) {
      uint64_t bits = group == 2 ? (uint64_t)x[2 * k + 1] << 32 | x[2 * k] : x[k];
      to[i + k] = T(full ? bits : low + bits % range);
    }
  }
}

struct KeyAndCounter {
  Tensor key, counter;
  KeyAndCounter(Call& c, int first) : key(c.in(first)), counter(c.in(first + 1)) {}
  Philox generator() const {  // read on the stream: they may be the result of a kernel
    Philox g;
    memcpy(g.key, key.data, 8), memcpy(g.counter, counter.data, 16);
    return g;
  }
};

template <class D, class T>
struct Stateless {
  KERNEL_NAME("StatelessRandom")
  explicit Stateless(Attrs&) {}
  void run(Call& c) {
    Tensor out = c.out<T>(0, c.host_dims(0));
    KeyAndCounter seed(c, 1);
    if (out.count)
      c.run(20. * out.count, out.count * sizeof(T), [=] { fill_random<D>(seed.generator(), out.as<T>(), out.count); });
  }
};

template <class T, bool FULL>
struct StatelessInteger {
  KERNEL_NAME("StatelessRandomInt")
  explicit StatelessInteger(Attrs&) {}
  void run(Call& c) {
    Tensor out = c.out<T>(0, c.host_dims(0));
    KeyAndCounter seed(c, 1);
    uint64_t low = 0, range = 1;
    if (!FULL) {
      T from = *c.in(4).as<T>(), to = *c.in(5).as<T>();
      if (from >= to) return c.fail("minval must be below maxval");
      low = (uint64_t)from, range = (uint64_t)to - (uint64_t)from;
    }
    if (!out.count) return;
    c.run(10. * out.count, out.count * sizeof(T),
          [=] { fill_integers(seed.generator(), out.as<T>(), out.count, FULL, low, range); });
  }
};

// Scrambles a seed into a key and a counter, on the host.
struct KeyCounter {
  KERNEL_NAME("StatelessRandomGetKeyCounter")
  explicit KeyCounter(Attrs&) {}
  void run(Call& c) {
    Dims seed = c.host_dims(0);
    Tensor key = c.out<uint64_t>(0, {1}), counter = c.out<uint64_t>(1, {2});
    if (c.failed) return;
    Philox g = {{0x3ec8f720u, 0x02461e29u},
                {(uint32_t)seed[0], (uint32_t)(seed[0] >> 32), (uint32_t)seed[1], (uint32_t)(seed[1] >> 32)}};
    uint32_t x[4];
    g.block(x);
    *key.as<uint64_t>() = (uint64_t)x[1] << 32 | x[0];
    counter.as<uint64_t>()[0] = 0, counter.as<uint64_t>()[1] = (uint64_t)x[3] << 32 | x[2];
  }
};

// The old, stateful ops: the kernel keeps the generator.
class Stateful {
  std::mutex mutex_;
  Philox generator_;

 protected:
  explicit Stateful(Attrs& a) {
    uint64_t seed = a.integer("seed"), seed2 = a.integer("seed2");
    if (!seed && !seed2) {
      std::random_device chance;
      seed = (uint64_t)chance() << 32 | chance(), seed2 = (uint64_t)chance() << 32 | chance();
    }
    generator_.key[0] = (uint32_t)seed, generator_.key[1] = (uint32_t)(seed >> 32);
    generator_.counter[2] = (uint32_t)seed2, generator_.counter[3] = (uint32_t)(seed2 >> 32);
  }
  Philox reserve(int64_t outputs) {
    std::lock_guard<std::mutex> lock(mutex_);
    Philox g = generator_;
    generator_.skip(outputs * 64);  // 256 samples an output, four a block
    return g;
  }
};

template <class D, class T>
struct StatefulRandom : Stateful {
  KERNEL_NAME("RandomUniform")
  explicit StatefulRandom(Attrs& a) : Stateful(a) {}
  void run(Call& c) {
    Tensor out = c.out<T>(0, c.host_dims(0));
    if (!out.count) return;
    c.run(20. * out.count, out.count * sizeof(T),
          [out, g = reserve(out.count)] { fill_random<D>(g, out.as<T>(), out.count); });
  }
};

template <class T>
struct StatefulInteger : Stateful {
  KERNEL_NAME("RandomUniformInt")
  explicit StatefulInteger(Attrs& a) : Stateful(a) {}
  void run(Call& c) {
    Tensor out = c.out<T>(0, c.host_dims(0));
    T from = *c.in(1).as<T>(), to = *c.in(2).as<T>();
    if (from >= to) return c.fail("minval must be below maxval");
    if (!out.count) return;
    uint64_t low = (uint64_t)from, range = (uint64_t)to - low;
    c.run(10. * out.count, out.count * sizeof(T),
          [=, g = reserve(out.count)] { fill_integers(g, out.as<T>(), out.count, false, low, range); });
  }
};

template <class T>
void reg_floats(TF_DataType shape) {
  Types t = {{"dtype", TypeOf<T>::value}, {"Tshape", shape}};
  reg<Stateless<Uniform<T>, T>>("StatelessRandomUniformV2", t, {"shape", "alg"});
  reg<Stateless<Normal<T>, T>>("StatelessRandomNormalV2", t, {"shape", "alg"});
  Types old = {{"dtype", TypeOf<T>::value}, {"T", shape}};
  reg<StatefulRandom<Uniform<T>, T>>("RandomUniform", old, {"shape"});
  reg<StatefulRandom<Normal<T>, T>>("RandomStandardNormal", old, {"shape"});
  if constexpr (!std::is_same<T, double>::value) {
    reg<Stateless<Truncated<T>, T>>("StatelessTruncatedNormalV2", t, {"shape", "alg"});
    reg<StatefulRandom<Truncated<T>, T>>("TruncatedNormal", old, {"shape"});
  }
}

}  // namespace

void register_random() {
  for (auto shape : kIndexTypes) {
    reg_floats<float>(shape), reg_floats<double>(shape), reg_floats<half>(shape), reg_floats<bf16>(shape);
    reg<KeyCounter>("StatelessRandomGetKeyCounter", {{"Tseed", shape}}, {"seed", "key", "counter"});
    for_types<int32_t, int64_t, uint32_t, uint64_t>([shape](auto t) {
      typedef decltype(t) T;
      Types types = {{"dtype", TypeOf<T>::value}, {"Tshape", shape}};
      if constexpr (std::is_signed<T>::value)
        reg<StatelessInteger<T, false>>("StatelessRandomUniformIntV2", types, {"shape", "alg", "minval", "maxval"});
      reg<StatelessInteger<T, true>>("StatelessRandomUniformFullIntV2", types, {"shape", "alg"});
    });
    for_types<int32_t, int64_t>([shape](auto t) {
      typedef decltype(t) T;
      reg<StatefulInteger<T>>("RandomUniformInt", {{"Tout", TypeOf<T>::value}, {"T", shape}},
                              {"shape", "minval", "maxval"});
    });
  }
}

}  // namespace simgpu
