// Updates of resource variables, Bitcast, and what else needs TensorFlow's C++ classes.
//
// The 2.21 wheel does not export the C helpers of kernels_experimental.h (TF_AssignUpdateVariable), and TensorFlow's
// own DEVICE_DEFAULT kernels would add on the host thread without waiting for the stream. So these few kernels reach
// for the C++ classes, which binds the library to the very version of TensorFlow it was built with.
#include "kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "xla/tsl/platform/env.h"
#include "xla/tsl/profiler/backends/cpu/annotation_stack.h"

namespace tf = tensorflow;

namespace simgpu {
namespace {

template <class T, bool ADD>
void update(void*, TF_OpKernelContext* c) {
  auto* context = reinterpret_cast<tf::OpKernelContext*>(c);
  tf::core::RefCountPtr<tf::Var> variable;
  OP_REQUIRES_OK(context, tf::LookupResource(context, tf::HandleFromInput(context, 0), &variable));
  const tf::Tensor& value = context->input(1);
  tf::mutex_lock lock(*variable->mu());
  tf::Tensor* tensor = variable->tensor();
  OP_REQUIRES(context, tensor->shape().IsSameSize(value.shape()),
              absl::InvalidArgumentError("simgpu: variable and value differ in shape"));
  TF_Status* status = TF_NewStatus();
  SP_Stream stream = TF_GetStream(c, status);
  TF_DeleteStatus(status);
  OP_REQUIRES(context, stream != nullptr, absl::InternalError("simgpu: no stream"));
  const int64_t n = tensor->NumElements();
  const T* old = static_cast<const T*>(backing(tensor->data()));
  if (!tensor->RefCountIsOne()) {  // someone still holds the value: copy on write
    tf::Tensor fresh;
    OP_REQUIRES_OK(context, context->allocate_temp(tensor->dtype(), tensor->shape(), &fresh));
    *tensor = fresh;
  }
  T* out = static_cast<T*>(backing(tensor->data()));
  const T* change = static_cast<const T*>(backing(value.data()));
  if (!n) return;
  const char* name = ADD ? "AssignAddVariableOp" : "AssignSubVariableOp";
  launch(stream, name, std::string(context->op_kernel().name()), name, n, 3. * n * sizeof(T), [=] {
    for (int64_t i = 0; i < n; i++) out[i] = T(ADD ? old[i] + change[i] : old[i] - change[i]);
  });
}

// A new type on the same buffer, as on a real GPU: no kernel runs.
void bitcast(void*, TF_OpKernelContext* c) {
  auto* context = reinterpret_cast<tf::OpKernelContext*>(c);
  const tf::Tensor& in = context->input(0);
  tf::DataType type = context->expected_output_dtype(0);
  int from = tf::DataTypeSize(in.dtype()), to = tf::DataTypeSize(type);
  tf::TensorShape shape = in.shape();
  if (from < to) shape.RemoveLastDims(1);
  if (from > to) shape.AddDim(from / to);
  tf::Tensor out;
  OP_REQUIRES_OK(context, out.BitcastFrom(in, type, shape));
  context->set_output(0, out);
}

}  // namespace

int64_t thread_id() { return tsl::Env::Default()->GetCurrentThreadId(); }
std::string annotation() { return tsl::profiler::AnnotationStack::Get(); }
void annotations(bool on) { tsl::profiler::AnnotationStack::Enable(on); }

void register_variables() {
  for_types<float, double, half, bf16, int64_t, uint32_t, uint64_t, uint8_t>([](auto t) {
    typedef decltype(t) T;
    Types types = {{"dtype", TypeOf<T>::value}};
    reg_raw("AssignAddVariableOp", update<T, true>, types, {"resource"});
    reg_raw("AssignSubVariableOp", update<T, false>, types, {"resource"});
  });
  reg_raw("Bitcast", bitcast, {});
}

}  // namespace simgpu
