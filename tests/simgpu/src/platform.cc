// What TensorFlow asks a plug-in for first: the platform and its devices.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

namespace simgpu {
namespace {

const std::vector<int>& visible() {
  static const std::vector<int> devices = visible_devices();
  return devices;
}

void device_count(const SP_Platform*, int* n, TF_Status* status) {
  *n = (int)visible().size();
  succeed(status);
}

void create_device(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  static char bus_ids[kMaxDevices][16];  // TensorFlow keeps the pointer
  int ordinal = params->ordinal;
  snprintf(bus_ids[ordinal], sizeof bus_ids[ordinal], "%s", pci_bus_id(physical_device(ordinal)).c_str());
  SP_Device* device = params->device;
  device->struct_size = SP_DEVICE_STRUCT_SIZE;
  device->ordinal = ordinal;
  device->device_handle = nullptr;
  device->hardware_name = device_name();
  device->device_vendor = "simgpu";
  device->pci_bus_id = bus_ids[ordinal];
  succeed(status);
}

void create_device_functions(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  SP_DeviceFns* functions = params->device_fns;
  functions->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  functions->get_numa_node = [](const SP_Device*) -> int32_t { return 0; };
  functions->get_memory_bandwidth = [](const SP_Device*) { return (int64_t)(config().mem_gbps * 1e9); };
  functions->get_gflops = [](const SP_Device*) { return config().gflops; };
  succeed(status);
}

void create_executor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  SP_StreamExecutor* x = params->stream_executor;
  x->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  fill_memory_functions(x);
  fill_stream_functions(x);
  fill_copy_functions(x);
  succeed(status);
}

void create_timer_functions(const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
  fill_timer_functions(functions);
  succeed(status);
}

}  // namespace

int physical_device(int ordinal) { return visible().at(ordinal); }

}  // namespace simgpu

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(SE_PlatformRegistrationParams* params,
                                                                     TF_Status* status) {
  using namespace simgpu;
  SP_Platform* platform = params->platform;
  platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform->name = "SIMGPU";
  platform->type = "GPU";
  platform->supports_unified_memory = false;
  platform->use_bfc_allocator = true;
  platform->force_memory_growth = getenv("SIMGPU_GROWTH") != nullptr;
  SP_PlatformFns* functions = params->platform_fns;
  functions->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions->get_device_count = device_count;
  functions->create_device = create_device;
  functions->destroy_device = [](const SP_Platform*, SP_Device*) {};
  functions->create_device_fns = create_device_functions;
  functions->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  functions->create_stream_executor = create_executor;
  functions->destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  functions->create_timer_fns = create_timer_functions;
  functions->destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
  succeed(status);
}
