// MIG: a GPU cut into slices.
#include <string.h>

#include "nvml.h"

using namespace simgpu;

NVML_API nvmlDeviceGetMigMode(Gpu* d, unsigned* current, unsigned* pending) {
  ENTER(d);
  // SIMGPU_NVML_MIG=0: a GPU that could; unset: one that cannot, as most.
  if (text_reading(nullptr, "MIG", "").empty()) return kNotSupported;
  return *current = *pending = slices() > 0, kOk;
}
NVML_API nvmlDeviceGetMaxMigDeviceCount(Gpu* d, unsigned* count) {
  ENTER(d);
  return *count = slices() ? 7 : 0, kOk;
}
NVML_API nvmlDeviceGetMigDeviceHandleByIndex(Gpu* d, unsigned index, Gpu** slice) {
  ENTER(d);
  if (d->slice >= 0) return kInvalidArgument;
  if ((int)index >= slices()) return kNotFound;
  return *slice = gpu(d->index, (int)index), kOk;
}
NVML_API nvmlDeviceIsMigDeviceHandle(Gpu* d, unsigned* is) {
  ENTER(d);
  return *is = d->slice >= 0, kOk;
}
NVML_API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Gpu* d, Gpu** whole) {
  ENTER(d);
  if (d->slice < 0) return kInvalidArgument;
  return *whole = gpu(d->index), kOk;
}
NVML_API nvmlDeviceGetGpuInstanceId(Gpu* d, unsigned* id) {
  ENTER(d);
  if (d->slice < 0) return kInvalidArgument;
  return *id = d->slice + 1, kOk;
}
NVML_API nvmlDeviceGetComputeInstanceId(Gpu* d, unsigned* id) {
  ENTER(d);
  if (d->slice < 0) return kInvalidArgument;
  return *id = 0, kOk;
}
NVML_API nvmlDeviceGetAttributes_v2(Gpu* d, Attributes* a) {
  ENTER(d);
  if (d->slice < 0) return kNotSupported;
  memset(a, 0, sizeof *a);
  a->multiprocessors = 108 / slices(), a->copy_engines = 1, a->gpu_slices = 1, a->compute_slices = 1;
  return a->memory_mb = load(*d).total_bytes >> 20, kOk;
}
