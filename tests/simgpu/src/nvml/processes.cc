// Who uses the GPU.
#include <algorithm>
#include <vector>

#include "nvml.h"

using namespace simgpu;

namespace {
constexpr int kRoom = kMaxProcesses * 2;
constexpr unsigned kNoInstance = 0xffffffff;

unsigned percent(double share) { return (unsigned)(100 * std::min(1., share) + 0.5); }

Return compute(const Gpu& d, unsigned* count, ProcessInfo* to) {
  Process list[kRoom];
  ProcessInfo infos[kRoom];
  int n = processes(d, list, kRoom);
  for (int i = 0; i < n; i++) {
    infos[i] = {list[i].pid, (unsigned long long)list[i].used_bytes, kNoInstance, kNoInstance};
    if (d.slice >= 0) infos[i].gpu_instance = d.slice + 1, infos[i].compute_instance = 0;
  }
  return hand_out(infos, n, count, to);
}
}  // namespace

NVML_API nvmlDeviceGetComputeRunningProcesses_v3(Gpu* d, unsigned* count, ProcessInfo* to) {
  ENTER(d);
  return compute(*d, count, to);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v2(Gpu* d, unsigned* count, ProcessInfo* to) {
  ENTER(d);
  return compute(*d, count, to);
}
// A desktop's window manager, where one is wanted: SIMGPU_NVML_DISPLAY=1.
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v3(Gpu* d, unsigned* count, ProcessInfo* to) {
  ENTER(d);
  ProcessInfo desktop = {1, 64ull << 20, kNoInstance, kNoInstance};
  return hand_out(&desktop, reading(*d, "DISPLAY", 0) ? 1 : 0, count, to);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v2(Gpu* d, unsigned* count, ProcessInfo* to) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(d, count, to);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses_v3(Gpu* d, unsigned* count, ProcessInfo*) {
  ENTER(d);
  return *count = 0, kOk;
}

NVML_API nvmlDeviceGetProcessUtilization(Gpu* d, ProcessSample* to, unsigned* count, unsigned long long last_seen_us) {
  ENTER(d);
  if (slices()) return kNotSupported;
  unsigned long long now = now_ns() / 1000;
  Process list[kRoom];
  ProcessSample samples[kRoom];
  int n = processes(*d, list, kRoom);
  for (int i = 0; i < n; i++) samples[i] = {list[i].pid, now, percent(list[i].busy), percent(list[i].memory), 0, 0};
  if (!n || now <= last_seen_us) return kNotFound;
  return hand_out(samples, n, count, to);
}
NVML_API nvmlDeviceGetProcessesUtilizationInfo(Gpu* d, ProcessesUtilization* info) {
  ENTER(d);
  if (slices()) return kNotSupported;
  unsigned long long now = now_ns() / 1000;
  Process list[kRoom];
  ProcessUtilization samples[kRoom];
  int n = processes(*d, list, kRoom);
  for (int i = 0; i < n; i++)
    samples[i] = {now, list[i].pid, percent(list[i].busy), percent(list[i].memory), 0, 0, 0, 0};
  if (!n) return kNotFound;
  return hand_out(samples, n, &info->count, info->samples);
}
NVML_API nvmlDeviceGetAccountingMode(Gpu* d, unsigned* mode) {
  ENTER(d);
  return *mode = 0, kOk;
}
