// Sums and zeros of lists of tensors: what the gradients of recurrent layers' loops need.
//
// TensorFlow has kernels for lists on any device, but adds them up with functions that are registered for CUDA only.
// Like variables.cc this reaches for the C++ classes.
#include "kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/kernels/tensor_list.h"

namespace tf = tensorflow;

namespace simgpu {
namespace {

struct Context {
  TF_OpKernelContext* c;
  tf::OpKernelContext* cc;
  const char* op;

  // Launches `body` for one element of the list.
  void start(double bytes, std::function<void()> body) const {
    TF_Status* status = TF_NewStatus();
    SP_Stream stream = TF_GetStream(c, status);
    TF_DeleteStatus(status);
    launch(stream, op, std::string(cc->op_kernel().name()), op, bytes / 4, bytes, std::move(body));
  }
};

template <class T>
void add(const Context& context, const tf::Tensor& a, const tf::Tensor& b, const tf::Tensor& sum) {
  const T *x = static_cast<const T*>(backing(a.data())), *y = static_cast<const T*>(backing(b.data()));
  T* z = static_cast<T*>(backing(sum.data()));
  int64_t n = sum.NumElements();
  auto body = [=] {
    for (int64_t i = 0; i < n; i++) z[i] = T(x[i] + y[i]);
  };
  on_device(sum.data()) ? context.start(3. * n * sizeof(T), body) : body();
}

absl::Status add_elements(const Context& context, const tf::Tensor& a, const tf::Tensor& b, tf::Tensor* sum) {
  if (a.dtype() == tf::DT_INVALID) return *sum = b, absl::OkStatus();  // never written: zero
  if (b.dtype() == tf::DT_INVALID) return *sum = a, absl::OkStatus();
  tf::AllocatorAttributes where;
  where.set_on_host(!on_device(a.data()));  // some lists of int32 are in host memory, some are not
  absl::Status status = context.cc->allocate_temp(a.dtype(), a.shape(), sum, where);
  if (!status.ok() || !a.NumElements()) return status;
  switch (a.dtype()) {
    case tf::DT_FLOAT:
      return add<float>(context, a, b, *sum), status;
    case tf::DT_DOUBLE:
      return add<double>(context, a, b, *sum), status;
    case tf::DT_HALF:
      return add<half>(context, a, b, *sum), status;
    case tf::DT_BFLOAT16:
      return add<bf16>(context, a, b, *sum), status;
    case tf::DT_INT64:
      return add<int64_t>(context, a, b, *sum), status;
    case tf::DT_INT32:
      return add<int32_t>(context, a, b, *sum), status;
    default:
      return absl::UnimplementedError("simgpu: sum of lists of " + tf::DataTypeString(a.dtype()));
  }
}

const tf::TensorList* list_in(tf::OpKernelContext* c, int i) {
  return c->input(i).scalar<tf::Variant>()().get<tf::TensorList>();
}

void set_list(tf::OpKernelContext* c, tf::TensorList list) {
  tf::Tensor* out = nullptr;
  tf::AllocatorAttributes host;
  host.set_on_host(true);
  OP_REQUIRES_OK(c, c->allocate_output(0, tf::TensorShape(), &out, host));
  out->scalar<tf::Variant>()() = std::move(list);
}

void add_lists(void*, TF_OpKernelContext* c) {
  auto* cc = reinterpret_cast<tf::OpKernelContext*>(c);
  Context context = {c, cc, "AddN"};
  const tf::TensorList* first = list_in(cc, 0);
  OP_REQUIRES(cc, first, absl::UnimplementedError("simgpu: sum of variants that are no lists"));
  tf::TensorList sum = first->Copy();
  for (int i = 1; i < cc->num_inputs(); i++) {
    const tf::TensorList* next = list_in(cc, i);
    bool fits = next && next->element_dtype == sum.element_dtype && next->tensors().size() == sum.tensors().size();
    OP_REQUIRES(cc, fits, absl::InvalidArgumentError("simgpu: lists of different type or length"));
    for (size_t k = 0; k < sum.tensors().size(); k++) {
      tf::Tensor element;
      OP_REQUIRES_OK(cc, add_elements(context, sum.tensors()[k], next->tensors()[k], &element));
      sum.tensors()[k] = element;
    }
  }
  set_list(cc, std::move(sum));
}

void zero_list(void*, TF_OpKernelContext* c) {
  auto* cc = reinterpret_cast<tf::OpKernelContext*>(c);
  Context context = {c, cc, "ZerosLike"};
  const tf::TensorList* list = list_in(cc, 0);
  OP_REQUIRES(cc, list, absl::UnimplementedError("simgpu: zeros of variants that are no lists"));
  tf::TensorList zeros = list->Copy();
  for (auto& element : zeros.tensors()) {
    if (element.dtype() == tf::DT_INVALID) continue;
    bool on_host = !on_device(element.data());
    tf::AllocatorAttributes where;
    where.set_on_host(on_host);
    tf::Tensor zero;
    OP_REQUIRES_OK(cc, cc->allocate_temp(element.dtype(), element.shape(), &zero, where));
    size_t bytes = zero.TotalBytes();
    void* p = backing(zero.data());
    auto body = [=] { memset(p, 0, bytes); };
    if (bytes) on_host ? body() : context.start(bytes, body);
    element = zero;
  }
  set_list(cc, std::move(zeros));
}

// Lists of masks: TensorFlow's own kernels for these three know numbers only.

// An element, or zeros for one that was never written.
void set_element(const Context& context, int output, const tf::Tensor& element, int shape_input, tf::DataType type) {
  if (element.dtype() != tf::DT_INVALID) return context.cc->set_output(output, element);
  tf::TensorShape shape;
  for (int64_t i = 0; i < context.cc->input(shape_input).NumElements(); i++)
    shape.AddDim(context.cc->input(shape_input).flat<int32_t>()(i));
  tf::Tensor* zero = nullptr;
  OP_REQUIRES_OK(context.cc, context.cc->allocate_output(output, shape, &zero));
  size_t bytes = zero->NumElements() * tf::DataTypeSize(type);
  void* p = backing(zero->data());
  if (bytes) context.start(bytes, [=] { memset(p, 0, bytes); });
}

void list_from_tensor(void*, TF_OpKernelContext* c) {
  auto* cc = reinterpret_cast<tf::OpKernelContext*>(c);
  Context context = {c, cc, "TensorListFromTensor"};
  const tf::Tensor& whole = cc->input(0);
  tf::TensorShape shape = whole.shape();
  shape.RemoveDim(0);
  tf::TensorList list;
  list.element_dtype = whole.dtype(), list.element_shape = tf::PartialTensorShape(shape);
  size_t bytes = shape.num_elements() * tf::DataTypeSize(whole.dtype());
  const char* from = static_cast<const char*>(backing(whole.data()));
  for (int64_t i = 0; i < whole.dim_size(0); i++, from += bytes) {
    tf::Tensor element;
    OP_REQUIRES_OK(cc, cc->allocate_temp(whole.dtype(), shape, &element));
    void* to = backing(element.data());
    if (bytes) context.start(2. * bytes, [=] { memcpy(to, from, bytes); });
    list.tensors().push_back(element);
  }
  set_list(cc, std::move(list));
}

void list_item(void*, TF_OpKernelContext* c) {
  auto* cc = reinterpret_cast<tf::OpKernelContext*>(c);
  const tf::TensorList* list = list_in(cc, 0);
  int32_t index = cc->input(1).scalar<int32_t>()();
  bool inside = list && index >= 0 && index < (int64_t)list->tensors().size();
  OP_REQUIRES(cc, inside, absl::InvalidArgumentError("simgpu: no such element"));
  set_element({c, cc, "TensorListGetItem"}, 0, list->tensors()[index], 2, list->element_dtype);
}

void list_pop(void*, TF_OpKernelContext* c) {
  auto* cc = reinterpret_cast<tf::OpKernelContext*>(c);
  const tf::TensorList* list = list_in(cc, 0);
  OP_REQUIRES(cc, list && !list->tensors().empty(), absl::InvalidArgumentError("simgpu: an empty list"));
  tf::TensorList rest = list->Copy();
  set_element({c, cc, "TensorListPopBack"}, 1, rest.tensors().back(), 1, list->element_dtype);
  rest.tensors().pop_back();
  set_list(cc, std::move(rest));
}

}  // namespace

void register_lists() {
  Types masks = {{"element_dtype", TF_BOOL}};
  reg_raw("TensorListFromTensor", list_from_tensor, masks, {"element_shape"});
  reg_raw("TensorListGetItem", list_item, masks, {"index", "element_shape"});
  reg_raw("TensorListPopBack", list_pop, masks, {"element_shape"});
  reg_raw("AddN", add_lists, {{"T", TF_VARIANT}});
  reg_raw("ZerosLike", zero_list, {{"T", TF_VARIANT}});
}

}  // namespace simgpu
