// What a kernel of the simulated GPU is written with.
//
// A kernel is a class: its constructor reads the op's attributes (Attrs), run(Call&) reads shapes and host-memory
// arguments at once, allocates the outputs, and pushes the arithmetic onto the device's stream with Call::run, as a
// CUDA kernel would be launched. The arithmetic may be slow, but must be right: tests compare it with the CPU's.
#pragma once
#include <math.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../runtime.h"
#include "tensorflow/c/kernels.h"
#include "types.h"

namespace simgpu {

typedef std::vector<int64_t> Dims;

inline int64_t product(const Dims& d) {
  int64_t n = 1;
  for (auto x : d) n *= x;
  return n;
}
std::string text(const Dims& d);  // "[2,3]"

// ---- construction -------------------------------------------------------------------------------------------------

class Attrs {
  TF_OpKernelConstruction* context_;
  TF_Status* status_ = TF_NewStatus();
  bool failed_ = false;

  void check() { failed_ = failed_ || TF_GetCode(status_) != TF_OK; }
  int32_t size(const char* name, int32_t* total = nullptr);

 public:
  explicit Attrs(TF_OpKernelConstruction* c) : context_(c) {}
  ~Attrs();
  bool flag(const char* name);
  int64_t integer(const char* name);
  float number(const char* name);
  std::string string(const char* name);
  Dims integers(const char* name);
  std::vector<float> numbers(const char* name);
  std::vector<std::string> strings(const char* name);
};

// ---- one call of a kernel -----------------------------------------------------------------------------------------

struct Tensor {
  TF_Tensor* handle = nullptr;
  Dims dims;
  void* data = nullptr;
  int64_t count = 0;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int rank() const { return (int)dims.size(); }
};

class Call {
  // A short float that reaches the kernel as float scratch memory, converted on the stream before and after its body.
  struct Scratch {
    std::shared_ptr<float[]> values;
    int64_t count;
    void* data;
    TF_DataType type;
    void load() const;
    void store() const;
  };
  TF_Status* status_ = TF_NewStatus();
  std::vector<TF_Tensor*> held_;
  std::vector<Scratch> before_, after_;

  Tensor scratch(Tensor t, TF_DataType type, std::vector<Scratch>& list);

 public:
  TF_OpKernelContext* const context;
  const char* const op;
  bool failed = false;
  bool on_host = false;    // the tensors are in host memory: compute at once, launch nothing
  bool via_float = false;  // half and bfloat16 tensors reach the kernel as float

  Call(TF_OpKernelContext* c, const char* op) : context(c), op(op) {}
  ~Call();
  void fail(const std::string& message);
  int inputs() const { return TF_NumInputs(context); }
  Tensor in(int i);
  std::vector<Tensor> in_range(int first, int end);
  Dims host_dims(int i);  // a shape, an axis or the like, in host memory
  Tensor out(int i, TF_DataType type, const Dims& d);
  Tensor out_like(int i, const Tensor& t) { return out(i, TF_TensorType(t.handle), t.dims); }
  template <class T>
  Tensor out(int i, const Dims& d) {
    return out(i, TypeOf<T>::value, d);
  }
  void run(double flops, double bytes, std::function<void()> body);
  // A product of matrices, or a convolution, of these sizes: Tensor Cores may do it.
  void multiply(double flops, double bytes, const Dims& sizes, std::function<void()> body);
};

// Runs a kernel on the host, for the int32 tensors that TensorFlow keeps in host memory on GPUs.
template <class K>
struct OnHost : K {
  using K::K;
  void run(Call& c) {
    c.on_host = true;
    K::run(c);
  }
};

// Lets a kernel written for float take half and bfloat16.
template <class K>
struct ViaFloat : K {
  using K::K;
  void run(Call& c) {
    c.via_float = true;
    K::run(c);
  }
};

// ---- registration -------------------------------------------------------------------------------------------------

typedef std::vector<std::pair<const char*, TF_DataType>> Types;  // attribute, type
typedef std::vector<const char*> Names;

// Remembers the registration for simgpu_kernels(), the list that tests check their cases against.
void note_kernel(const char* op, const Types& types);

template <class K>
void reg(const char* op, const Types& types, const Names& host_memory = {}) {
  TF_Status* status = TF_NewStatus();
  TF_KernelBuilder* builder = TF_NewKernelBuilder(
      op, "GPU",
      [](TF_OpKernelConstruction* c) -> void* {
        Attrs attrs(c);
        return new K(attrs);
      },
      [](void* kernel, TF_OpKernelContext* c) {
        Call call(c, K::name());
        static_cast<K*>(kernel)->run(call);
      },
      [](void* kernel) { delete static_cast<K*>(kernel); });
  for (auto& t : types) TF_KernelBuilder_TypeConstraint(builder, t.first, t.second, status);
  for (auto argument : host_memory) TF_KernelBuilder_HostMemory(builder, argument);
  TF_RegisterKernelBuilder(op, builder, status);
  if (TF_GetCode(status) != TF_OK) fprintf(stderr, "simgpu: %s: %s\n", op, TF_Message(status));
  TF_DeleteStatus(status);
  note_kernel(op, types);
}

// Registers a plain function, for kernels that work on TensorFlow's C++ classes.
void reg_raw(const char* op, void (*compute)(void*, TF_OpKernelContext*), const Types& types,
             const Names& host_memory = {});

// The name under which a kernel appears in traces and in the log.
#define KERNEL_NAME(x) \
  static const char* name() { return x; }

constexpr std::initializer_list<TF_DataType> kIndexTypes = {TF_INT32, TF_INT64};

// Calls f(T()) for each type.
template <class... T, class F>
void for_types(F f) {
  (f(T()), ...);
}

// One function per file of kernels.
void register_binary();
void register_unary();
void register_casts();
void register_reductions();
void register_shapes();
void register_diagonals();
void register_slices();
void register_gathers();
void register_random();
void register_matmul();
void register_convolutions();
void register_convolutions3d();
void register_pooling();
void register_normalisation();
void register_losses();
void register_images();
void register_scans();
void register_variables();
void register_lists();

}  // namespace simgpu
