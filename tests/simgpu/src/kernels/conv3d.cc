// Convolutions over volumes.
#include "conv.h"

namespace simgpu {

void register_convolutions3d() {
  reg_floats<Conv<3, false>>("Conv3D");
  for (auto shape : kIndexTypes) {
    for (auto type : {TF_FLOAT, TF_HALF, TF_BFLOAT16}) {
      Types types = {{"T", type}, {"Tshape", shape}};
      if (type == TF_FLOAT)
        reg<ConvInputGrad<3>>("Conv3DBackpropInputV2", types, {"input_sizes"});
      else
        reg<ViaFloat<ConvInputGrad<3>>>("Conv3DBackpropInputV2", types, {"input_sizes"});
    }
  }
  reg_floats<ConvFilterGrad<3>>("Conv3DBackpropFilterV2", {"filter_sizes"});
}

}  // namespace simgpu
