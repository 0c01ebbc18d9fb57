// The system, and how devices are found and called.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

using namespace simgpu;

NVML_API nvmlSystemGetDriverVersion(char* to, unsigned room) {
  ENTER();
  return hand_out(text_reading(nullptr, "DRIVER", "550.54.15"), to, room);
}
NVML_API nvmlSystemGetNVMLVersion(char* to, unsigned room) {
  ENTER();
  return hand_out("12." + text_reading(nullptr, "DRIVER", "550.54.15"), to, room);
}
NVML_API nvmlSystemGetCudaDriverVersion_v2(int* version) {
  ENTER();
  return *version = (int)reading(*gpu(0), "CUDA", 12040), kOk;
}
NVML_API nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
NVML_API nvmlSystemGetDriverBranch(DriverBranch* branch, unsigned) {
  ENTER();
  return hand_out("r550_00", branch->branch, sizeof branch->branch);
}
NVML_API nvmlSystemGetProcessName(unsigned pid, char* to, unsigned room) {
  ENTER();
  char path[64], name[1024];
  snprintf(path, sizeof path, "/proc/%u/exe", pid);
  ssize_t n = readlink(path, name, sizeof name - 1);
  if (n < 0) return kNotFound;
  return hand_out(std::string(name, n).substr(0, room - 1), to, room);
}

NVML_API nvmlDeviceGetCount_v2(unsigned* count) {
  ENTER();
  return *count = config().count, kOk;
}
NVML_API nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu** device) {
  ENTER();
  if ((int)index >= config().count) return kInvalidArgument;
  *device = gpu((int)index);
  return Enter{__func__}(*device);  // a GPU that fell off the bus has no handle to give
}
NVML_API nvmlDeviceGetHandleByIndex(unsigned index, Gpu** device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

namespace {
std::string slice_uuid(const Gpu& device) {
  return "MIG-51a6" + std::to_string(1000 + device.slice) + uuid_of(device.index).substr(12);
}
std::string uuid(const Gpu& device) { return device.slice < 0 ? uuid_of(device.index) : slice_uuid(device); }
}  // namespace

NVML_API nvmlDeviceGetHandleByUUID(const char* wanted, Gpu** device) {
  ENTER();
  for (int i = 0; i < config().count; i++)
    for (int s = -1; s < slices(); s++)
      if (uuid(*gpu(i, s)) == wanted) return *device = gpu(i, s), Enter{__func__}(*device);
  return kNotFound;
}
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char* wanted, Gpu** device) {
  ENTER();
  for (int i = 0; i < config().count; i++)
    for (bool long_domain : {false, true})
      if (strcasecmp(pci_bus_id(i, long_domain).c_str(), wanted) == 0)
        return *device = gpu(i), Enter{__func__}(*device);
  return kNotFound;
}

NVML_API nvmlDeviceGetName(Gpu* d, char* to, unsigned room) {
  ENTER(d);
  std::string slice = d->slice < 0 ? "" : " MIG 1g." + std::to_string(load(*d).total_bytes >> 30) + "gb";
  return hand_out(device_name() + slice, to, room);
}
NVML_API nvmlDeviceGetIndex(Gpu* d, unsigned* index) {
  ENTER(d);
  return *index = d->slice < 0 ? d->index : d->slice, kOk;
}
NVML_API nvmlDeviceGetUUID(Gpu* d, char* to, unsigned room) {
  ENTER(d);
  return hand_out(uuid(*d), to, room);
}
NVML_API nvmlDeviceGetMinorNumber(Gpu* d, unsigned* minor) {
  ENTER(d);
  return *minor = d->index, kOk;
}
NVML_API nvmlDeviceGetSerial(Gpu* d, char* to, unsigned room) {
  ENTER(d);
  return hand_out("51a60000" + std::to_string(d->index), to, room);
}
NVML_API nvmlDeviceGetBoardPartNumber(Gpu* d, char* to, unsigned room) {
  ENTER(d);
  return hand_out("900-SIMGPU-0000", to, room);
}
NVML_API nvmlDeviceGetVbiosVersion(Gpu* d, char* to, unsigned room) {
  ENTER(d);
  return hand_out("92.00.36.00.01", to, room);
}
NVML_API nvmlDeviceGetPciInfo_v3(Gpu* d, PciInfo* pci) {
  ENTER(d);
  memset(pci, 0, sizeof *pci);
  pci->bus = d->index + 1, pci->device_id = 0x20b010de, pci->subsystem_id = 0x134f10de;
  hand_out(pci_bus_id(d->index), pci->legacy, sizeof pci->legacy);
  return hand_out(pci_bus_id(d->index, true), pci->bus_id, sizeof pci->bus_id);
}
NVML_API nvmlDeviceGetPciInfo_v2(Gpu* d, PciInfo* pci) { return nvmlDeviceGetPciInfo_v3(d, pci); }
NVML_API nvmlDeviceGetPciInfo(Gpu* d, PciInfo* pci) { return nvmlDeviceGetPciInfo_v3(d, pci); }

// Hopper where GPM is on, Ampere otherwise: GPM came with Hopper.
NVML_API nvmlDeviceGetCudaComputeCapability(Gpu* d, int* major, int* minor) {
  ENTER(d);
  return *major = (int)reading(*d, "GPM", 0) ? 9 : 8, *minor = 0, kOk;
}
NVML_API nvmlDeviceGetArchitecture(Gpu* d, unsigned* architecture) {
  ENTER(d);
  return *architecture = (int)reading(*d, "GPM", 0) ? 9 : 7, kOk;
}
NVML_API nvmlDeviceGetBrand(Gpu* d, unsigned* brand) {
  ENTER(d);
  return *brand = 14, kOk;
}
NVML_API nvmlDeviceGetNumGpuCores(Gpu* d, unsigned* cores) {
  ENTER(d);
  return *cores = 6912, kOk;
}
NVML_API nvmlDeviceGetMemoryBusWidth(Gpu* d, unsigned* bits) {
  ENTER(d);
  return *bits = (unsigned)reading(*d, "MEMORY_BUS_BITS", 5120), kOk;
}
NVML_API nvmlDeviceGetBusType(Gpu* d, unsigned* type) {
  ENTER(d);
  return *type = 2, kOk;  // PCIe
}
NVML_API nvmlDeviceGetPersistenceMode(Gpu* d, unsigned* mode) {
  ENTER(d);
  return *mode = 1, kOk;
}
NVML_API nvmlDeviceGetComputeMode(Gpu* d, unsigned* mode) {
  ENTER(d);
  return *mode = 0, kOk;
}
NVML_API nvmlDeviceGetDisplayActive(Gpu* d, unsigned* active) {
  ENTER(d);
  return *active = (unsigned)reading(*d, "DISPLAY", 0), kOk;
}
NVML_API nvmlDeviceGetDisplayMode(Gpu* d, unsigned* mode) { return nvmlDeviceGetDisplayActive(d, mode); }
NVML_API nvmlDeviceGetMultiGpuBoard(Gpu* d, unsigned* multi) {
  ENTER(d);
  return *multi = 0, kOk;
}
NVML_API nvmlDeviceGetCpuAffinity(Gpu* d, unsigned words, unsigned long* mask) {
  ENTER(d);
  for (unsigned i = 0; i < words; i++) mask[i] = 0;
  for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN) && cpu / 64 < (long)words; cpu++)
    mask[cpu / 64] |= 1ul << cpu % 64;
  return kOk;
}
NVML_API nvmlDeviceGetTopologyCommonAncestor(Gpu* a, Gpu* b, unsigned* level) {
  ENTER(a);
  return *level = a == b ? 0 : 40, kOk;  // the same board; the same NUMA node
}
NVML_API nvmlDeviceGetP2PStatus(Gpu* a, Gpu*, unsigned, unsigned* status) {
  ENTER(a);
  return *status = 0, kOk;
}

// "Structure size", by which a test finds out whether pynvml and this library mean the same.
extern "C" __attribute__((visibility("default"))) const char* simgpu_nvml_sizes() {
  static const std::string text = [] {
    std::string t;
#define SIZE(name, type) t += std::string(name " ") + std::to_string(sizeof(type)) + "\n"
    SIZE("c_nvmlUtilization_t", Utilization), SIZE("c_nvmlMemory_t", Memory), SIZE("c_nvmlMemory_v2_t", MemoryV2);
    SIZE("c_nvmlBAR1Memory_t", Bar1), SIZE("nvmlPciInfo_t", PciInfo), SIZE("c_nvmlProcessInfo_v2_t", ProcessInfo);
    SIZE("c_nvmlProcessUtilizationSample_t", ProcessSample), SIZE("c_nvmlSample_t", Sample);
    SIZE("c_nvmlProcessUtilizationInfo_v1_t", ProcessUtilization);
    SIZE("c_nvmlProcessesUtilizationInfo_v1_t", ProcessesUtilization), SIZE("c_nvmlFieldValue_t", FieldValue);
    SIZE("c_nvmlEccErrorCounts_t", EccCounts), SIZE("c_nvmlViolationTime_t", ViolationTime);
    SIZE("c_nvmlDeviceAttributes", Attributes), SIZE("c_nvmlTemperature_v1_t", TemperatureV1);
    SIZE("c_nvmlSystemDriverBranchInfo_v1_t", DriverBranch), SIZE("c_nvmlGpmMetric_t", GpmMetric);
    SIZE("c_nvmlGpmSupport_t", GpmSupport);
#undef SIZE
    return t;
  }();
  return text.c_str();
}
