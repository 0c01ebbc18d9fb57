#include "kernel.h"

#include <stdio.h>

namespace simgpu {
namespace {

std::string& kernel_list() {
  static auto& list = *new std::string;
  return list;
}

}  // namespace

void note_kernel(const char* op, const Types& types) {
  std::string& list = kernel_list();
  list += op;
  for (auto& t : types) list += std::string(" ") + t.first + "=" + std::to_string(t.second);
  list += "\n";
}

void reg_raw(const char* op, void (*compute)(void*, TF_OpKernelContext*), const Types& types,
             const Names& host_memory) {
  TF_Status* status = TF_NewStatus();
  TF_KernelBuilder* builder = TF_NewKernelBuilder(op, "GPU", nullptr, compute, nullptr);
  for (auto& t : types) TF_KernelBuilder_TypeConstraint(builder, t.first, t.second, status);
  for (auto argument : host_memory) TF_KernelBuilder_HostMemory(builder, argument);
  TF_RegisterKernelBuilder(op, builder, status);
  if (TF_GetCode(status) != TF_OK) fprintf(stderr, "simgpu: %s: %s\n", op, TF_Message(status));
  TF_DeleteStatus(status);
  note_kernel(op, types);
}

std::string text(const Dims& d) {
  std::string s = "[";
  for (auto x : d) s += (s.size() > 1 ? "," : "") + std::to_string(x);
  return s + "]";
}

Attrs::~Attrs() {
  if (failed_) TF_OpKernelConstruction_Failure(context_, status_);
  TF_DeleteStatus(status_);
}

int32_t Attrs::size(const char* name, int32_t* total) {
  int32_t length = 0, bytes = 0;
  TF_OpKernelConstruction_GetAttrSize(context_, name, &length, &bytes, status_), check();
  if (total) *total = bytes;
  return std::max(length, 0);
}

bool Attrs::flag(const char* name) {
  TF_Bool value = 0;
  TF_OpKernelConstruction_GetAttrBool(context_, name, &value, status_), check();
  return value;
}

int64_t Attrs::integer(const char* name) {
  int64_t value = 0;
  TF_OpKernelConstruction_GetAttrInt64(context_, name, &value, status_), check();
  return value;
}

float Attrs::number(const char* name) {
  float value = 0;
  TF_OpKernelConstruction_GetAttrFloat(context_, name, &value, status_), check();
  return value;
}

std::string Attrs::string(const char* name) {
  int32_t total = 0;
  size(name, &total);
  std::string value(total + 1, 0);
  TF_OpKernelConstruction_GetAttrString(context_, name, &value[0], total, status_), check();
  value.resize(total);
  return value;
}

Dims Attrs::integers(const char* name) {
  Dims values(size(name));
  if (!values.empty()) {
    TF_OpKernelConstruction_GetAttrInt64List(context_, name, values.data(), (int)values.size(), status_), check();
  }
  return values;
}

std::vector<float> Attrs::numbers(const char* name) {
  std::vector<float> values(size(name));
  if (!values.empty()) {
    TF_OpKernelConstruction_GetAttrFloatList(context_, name, values.data(), (int)values.size(), status_), check();
  }
  return values;
}

std::vector<std::string> Attrs::strings(const char* name) {
  int32_t total = 0, n = size(name, &total);
  std::vector<char*> texts(n);
  std::vector<size_t> lengths(n);
  std::vector<char> storage(total + 1);
  if (n) {
    TF_OpKernelConstruction_GetAttrStringList(context_, name, texts.data(), lengths.data(), n, storage.data(), total,
                                              status_),
        check();
  }
  std::vector<std::string> values;
  for (int i = 0; i < n; i++) values.emplace_back(texts[i], lengths[i]);
  return values;
}

Call::~Call() {
  for (auto t : held_) TF_DeleteTensor(t);
  TF_DeleteStatus(status_);
}

void Call::fail(const std::string& message) {
  TF_SetStatus(status_, TF_INVALID_ARGUMENT, ("simgpu " + std::string(op) + ": " + message).c_str());
  TF_OpKernelContext_Failure(context, status_);
  failed = true;
}

namespace {
Tensor wrap(TF_Tensor* handle) {
  Tensor t;
  t.handle = handle;
  t.data = backing(TF_TensorData(handle));
  t.count = TF_TensorElementCount(handle);
  for (int k = 0; k < TF_NumDims(handle); k++) t.dims.push_back(TF_Dim(handle, k));
  return t;
}
bool is_short_float(TF_DataType type) { return type == TF_HALF || type == TF_BFLOAT16; }
}  // namespace

void Call::Scratch::load() const {
  if (type == TF_HALF) std::copy_n(static_cast<half*>(data), count, values.get());
  if (type == TF_BFLOAT16) std::copy_n(static_cast<bf16*>(data), count, values.get());
}

void Call::Scratch::store() const {
  if (type == TF_HALF) std::copy_n(values.get(), count, static_cast<half*>(data));
  if (type == TF_BFLOAT16) std::copy_n(values.get(), count, static_cast<bf16*>(data));
}

Tensor Call::scratch(Tensor t, TF_DataType type, std::vector<Scratch>& list) {
  // Not filled: that would take the host's time, also where nothing is computed.
  Scratch s = {std::shared_ptr<float[]>(new float[t.count + 1]), t.count, t.data, type};  // + 1: never empty
  t.data = s.values.get();
  list.push_back(s);
  return t;
}

Tensor Call::in(int i) {
  TF_Tensor* handle = nullptr;
  TF_GetInput(context, i, &handle, status_);
  if (!handle) {
    fail("no input " + std::to_string(i));
    return Tensor();
  }
  held_.push_back(handle);
  Tensor t = wrap(handle);
  TF_DataType type = TF_TensorType(handle);
  return via_float && is_short_float(type) ? scratch(t, type, before_) : t;
}

std::vector<Tensor> Call::in_range(int first, int end) {
  std::vector<Tensor> list;
  for (int i = first; i < end; i++) list.push_back(in(i));
  return list;
}

Dims Call::host_dims(int i) {
  Tensor t = in(i);
  Dims values(t.count);
  for (int64_t k = 0; k < t.count; k++)
    values[k] = TF_TensorType(t.handle) == TF_INT64 ? t.as<int64_t>()[k] : t.as<int32_t>()[k];
  return values;
}

Tensor Call::out(int i, TF_DataType type, const Dims& d) {
  TF_DataType expected = TF_ExpectedOutputDataType(context, i);
  bool convert = via_float && is_short_float(expected);
  if (convert) type = expected;
  TF_Tensor* handle =
      TF_AllocateOutput(context, i, type, d.data(), (int)d.size(), product(d) * TF_DataTypeSize(type), status_);
  if (!handle || TF_GetCode(status_) != TF_OK) {
    TF_OpKernelContext_Failure(context, status_), failed = true;
    return Tensor();
  }
  held_.push_back(handle);
  return convert ? scratch(wrap(handle), type, after_) : wrap(handle);
}

void Call::multiply(double flops, double bytes, const Dims& sizes, std::function<void()> body) {
  bool fits = !before_.empty();  // short floats
  for (int64_t size : sizes) fits = fits && size % 8 == 0;
  run(fits ? flops / config().tensor_cores : flops, bytes, std::move(body));
}

void Call::run(double flops, double bytes, std::function<void()> body) {
  if (failed) return;
  if (on_host) return body();
  if (via_float) {
    body = [body, before = before_, after = after_] {
      for (auto& s : before) s.load();
      body();
      for (auto& s : after) s.store();
    };
  }
  SP_Stream stream = TF_GetStream(context, status_);
  if (!stream) return fail("no stream");
  TF_StringView node = TF_GetOpKernelName(context);
  launch(stream, op, std::string(node.data, node.len), op, flops, bytes, std::move(body));
}

}  // namespace simgpu

extern "C" __attribute__((visibility("default"))) void TF_InitKernel() {
  using namespace simgpu;
  register_binary();
  register_unary();
  register_casts();
  register_reductions();
  register_shapes();
  register_diagonals();
  register_slices();
  register_gathers();
  register_random();
  register_matmul();
  register_convolutions();
  register_convolutions3d();
  register_pooling();
  register_normalisation();
  register_losses();
  register_images();
  register_scans();
  register_variables();
  register_lists();
}

// Lines "Op attribute=type attribute=type". Returns the length; call again with a larger buffer where that is not less
// than `size`.
extern "C" __attribute__((visibility("default"))) int simgpu_kernels(char* buffer, int size) {
  const std::string& list = simgpu::kernel_list();
  snprintf(buffer, size, "%s", list.c_str());
  return (int)list.size();
}
