// What the readings come from: the knobs, and what the GPUs of all processes did lately.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "nvml.h"

namespace simgpu {
namespace {

constexpr int kMaxSlices = 7;
constexpr int64_t kMegabyte = 1 << 20;

const char* variable(const Gpu* device, const char* name) {
  char key[96];
  if (device) {
    snprintf(key, sizeof key, "SIMGPU_NVML_%s_%d", name, device->index);
    const char* text = getenv(key);
    if (text && *text) return text;
  }
  snprintf(key, sizeof key, "SIMGPU_NVML_%s", name);
  const char* text = getenv(key);
  return text && *text ? text : nullptr;
}

}  // namespace

Gpu* gpu(int index, int slice) {
  static Gpu all[kMaxDevices][kMaxSlices + 1];
  Gpu* device = &all[index][slice + 1];
  device->index = index, device->slice = slice;
  return device;
}

int slices() {
  const char* text = getenv("SIMGPU_NVML_MIG");
  return text ? std::min(kMaxSlices, atoi(text)) : 0;
}

double reading(const Gpu& device, const char* name, double otherwise) {
  const char* text = variable(&device, name);
  return text ? atof(text) : otherwise;
}

std::string text_reading(const Gpu* device, const char* name, const std::string& otherwise) {
  const char* text = variable(device, name);
  return text ? text : otherwise;
}

int processes(const Gpu& device, Process* list, int room) {
  int n = 0;
  for (auto& p : shared_activity()->processes) {
    if (!alive(p) || n == room) continue;
    Recent r = recent(device.index, kSamplePeriod, &p);
    if (!r.used_bytes && !r.busy_ns) continue;
    list[n++] = {(unsigned)p.pid, r.used_bytes, (double)r.busy_ns / kSamplePeriod, (double)r.memory_ns / kSamplePeriod};
  }
  const char* made_up = getenv("SIMGPU_NVML_PROCESSES");
  std::string rest = made_up ? made_up : "";
  while (!rest.empty() && n < room) {
    size_t comma = std::min(rest.find(','), rest.size());
    unsigned pid = 0, mb = 0, percent = 0;
    int on = -1;
    int fields = sscanf(rest.substr(0, comma).c_str(), "%u:%u:%u:%d", &pid, &mb, &percent, &on);
    rest = comma < rest.size() ? rest.substr(comma + 1) : "";
    if (fields >= 3 && (on < 0 || on == device.index))
      list[n++] = {pid, mb * kMegabyte, percent / 100., percent / 200.};
  }
  return n;
}

Load load(const Gpu& device) {
  Load sum;
  Process list[kMaxProcesses * 2];
  int n = processes(device, list, kMaxProcesses * 2);
  for (int i = 0; i < n; i++)
    sum.busy += list[i].busy, sum.memory += list[i].memory, sum.used_bytes += list[i].used_bytes;
  sum.busy = std::min(1., sum.busy), sum.memory = std::min(sum.busy, sum.memory);
  // The driver keeps some of the memory for itself, and TensorFlow is told of the rest only.
  sum.reserved_bytes = (int64_t)reading(device, "RESERVED_MB", 256) * kMegabyte;
  sum.total_bytes = (int64_t)(config().mem_mb * kMegabyte) + sum.reserved_bytes;
  if (device.slice >= 0) sum.total_bytes /= slices(), sum.reserved_bytes /= slices();
  return sum;
}

}  // namespace simgpu
